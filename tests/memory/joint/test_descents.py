"""Descents leave no decision of a short program that one change would make quicker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidnn.memory.joint import descents as module
from minidnn.memory.joint import planner
from minidnn.memory.joint.descents import QUICKER, Descents
from minidnn.memory.joint.evaluator import Evaluator, TooLong
from minidnn.memory.joint.index import Index
from minidnn.memory.joint.planner import Planner
from minidnn.memory.joint.repair import Repair
from minidnn.memory.joint.search import Search
from tests.memory.joint.test_evaluator import HUGE, check
from tests.support.exhaustive.nets import NETS, device, training
from tests.support.programs import PROGRAMS, costs


def begun(name: str, part: float) -> tuple[Descents, int]:
    """The descents of a program, and this part of the bytes that it takes where nothing moves."""
    ev = Evaluator(Index(PROGRAMS[name](), costs(bandwidth=5e8)))
    ev.evaluate(HUGE)
    return Descents(Search(ev, Repair(ev))), int((ev.base + ev.view("live", "executions").max()) * part)


@pytest.mark.parametrize("name", ["chain", "nested", "inception"])
def test_no_single_change_of_the_result_is_quicker(name):
    descents, limit = begun(name, 0.7)
    ev = descents.evaluator
    found = descents.improve(limit, 0.0)
    assert found is not None and ev.evaluate(limit) == found
    check(ev, limit)
    tried = 0
    for move in descents.moves:
        before = move.now(ev)
        move.apply(ev)
        try:
            assert ev.evaluate(limit).seconds >= found.seconds * QUICKER
            tried += 1
        except (TooLong, ValueError):
            pass
        before.apply(ev)
    assert tried > len(descents.moves) // 2


def test_equal_calls_give_equal_decisions():
    once, twice = ((d.improve(limit, 0.0), d.evaluator.save()) for d, limit in (begun("nested", 0.7) for _ in range(2)))
    assert once[0] == twice[0] and (once[1].fate == twice[1].fate).all() and (once[1].choice == twice[1].choice).all()


def test_they_end_where_the_plan_is_quick_enough():
    descents, limit = begun("nested", 0.7)
    long = descents.improve(limit, 0.0)
    used = descents.evaluator.evaluations
    descents, limit = begun("nested", 0.7)
    assert descents.improve(limit, long.seconds * 2).seconds <= long.seconds * 2
    assert descents.evaluator.evaluations < used / 2


def test_no_decisions_keep_a_limit_below_what_every_plan_needs(monkeypatch):
    monkeypatch.setattr(module, "WORK", 10_000)
    descents, _ = begun("chain", 1.0)
    assert descents.improve(descents.evaluator.base, 0.0) is None


def test_a_program_without_decisions_is_as_it_is(monkeypatch):
    descents, limit = begun("chain", 1.0)
    known = descents.evaluator.evaluate(limit)
    monkeypatch.setattr(descents, "moves", [])
    assert descents.improve(limit, 0.0) == known


def test_a_plan_far_from_the_bounds_answer_is_found_and_long_programs_are_left_alone(monkeypatch):
    program, slow = training(NETS["chain"]), device("h100", 0.3)
    made = Planner(program, slow)
    found = made.within(50 << 20)
    better = made.descended(50 << 20, found)
    assert better.seconds < found.seconds * 0.95 and better.bound == found.bound
    assert made.arena(better.plan, 50 << 20) <= 50 << 20
    monkeypatch.setattr(planner, "SHORT", len(program.ops) - 1)
    assert made.descended(50 << 20, found) is found
    enough = replace(found, bound=replace(found.bound, seconds=found.seconds))
    monkeypatch.setattr(planner, "SHORT", len(program.ops))
    assert made.descended(50 << 20, enough) is enough
