"""Equal blocks: what stands in the same place of each is found, changed together, and sought once."""

from __future__ import annotations

import itertools
import random

import pytest

from minidnn.memory.joint import planner, search
from minidnn.memory.joint.alike import alike_gaps, alike_ops
from minidnn.memory.joint.evaluator import Evaluator
from minidnn.memory.joint.host_residents import HostResidents
from minidnn.memory.joint.index import Index
from minidnn.memory.joint.linear import Solver
from minidnn.memory.joint.repair import Repair
from minidnn.memory.joint.search import Search
from minidnn.memory.planning import arrange
from tests.memory.joint.test_evaluator import HUGE, check
from tests.support.programs import PROGRAMS, costs, transformer


def rows(blocks: int) -> tuple[set[tuple[str, ...]], set[tuple[str, ...]]]:
    """The names of ops that are alike, and of tensors whose gaps are."""
    ev = Evaluator(Index(transformer(blocks), costs()))
    ops, gaps = alike_ops(ev.index, range(len(ev.index.ops))), alike_gaps(ev)
    return (
        {tuple(ev.index.ops[p].name for p in ops.row(key)) for key in range(len(ev.index.ops))},
        {tuple(ev.gaps[g].tensor.name for g in gaps.row(key)) for key in range(len(ev.gaps))},
    )


def test_what_is_alike_grows_with_the_blocks_and_not_in_number():
    few, many = rows(4), rows(12)
    assert [len(each) for each in many] == [len(each) for each in few] == [56, 83]
    assert tuple(f"gelu{i}.forward" for i in range(12)) in many[0]
    assert tuple(f"softmax{i}.y" for i in range(12)) in many[1]
    assert len(transformer(12).ops) == 587


def test_a_draw_is_a_run_of_neighbours_or_all_and_has_the_key():
    ev = Evaluator(Index(transformer(12), costs()))
    alike, r = alike_gaps(ev), random.Random(0)
    row = next(alike.row(g) for g in range(len(ev.gaps)) if len(alike.row(g)) == 12)
    lengths = set()
    for _ in range(300):
        drawn = alike.some(r, row[5])
        assert row[5] in drawn and drawn == row[row.index(drawn[0]) :][: len(drawn)]
        lengths.add(len(drawn))
    assert {1, 2, 12} < lengths


def test_gaps_are_alike_only_if_the_same_is_open_to_them():
    index = Index(transformer(4).with_host_resident(transformer(4).movable), costs())
    ev = Evaluator(index)
    alike = alike_gaps(ev)
    for g in range(len(ev.gaps)):
        row = alike.row(g)
        assert len(set(ev.may_offload[row])) == len(set(ev.may_recompute[row])) == 1
        assert len({ev.gaps[k].tensor.nbytes for k in row}) == 1


@pytest.mark.parametrize("hosted", [False, True], ids=["on device", "on host"])
def test_changes_in_equal_blocks_keep_the_limit(hosted):
    program = transformer(6)
    program = program.with_host_resident(program.movable if hosted else ())
    ev = Evaluator(Index(program, costs(bandwidth=1e8)))
    repair = Repair(ev)
    ev.evaluate(HUGE)
    limit = int((ev.base + ev.view("live", "executions").max()) * 0.5)
    before = repair.walk(limit, 0)
    after = Search(ev, repair).improve(limit, 1000, 0)
    assert after.seconds < before.seconds
    check(ev, limit)


def test_changes_in_equal_blocks_lead_further_with_as_many_evaluations(monkeypatch):
    ev = Evaluator(Index(transformer(12), costs(bandwidth=1e8)))
    repair, found = Repair(ev), {}
    ev.evaluate(HUGE)
    limit = int((ev.base + ev.view("live", "executions").max()) * 0.4)
    repair.walk(limit, 0)
    start, searched = ev.save(), Search(ev, repair)
    for together in (0.0, search.TOGETHER):
        monkeypatch.setattr(search, "TOGETHER", together)
        found[together] = []
        for seed in range(3):
            ev.restore(start)
            found[together].append(searched.improve(limit, 1500, seed).seconds)
    alone, both = found.values()
    assert max(both) < min(alone)


@pytest.mark.parametrize(
    ("blocks", "programs", "whole"), [(2, 16, 1), pytest.param(12, 12, 0, marks=pytest.mark.extended)]
)
def test_the_work_of_a_plan_is_bounded(blocks, programs, whole, monkeypatch):
    """Evaluations, linear programs and searches for whole numbers, of all sets of tensors on the host together."""
    monkeypatch.setattr(planner, "WORK", 200_000)
    program, device = transformer(blocks), costs(bandwidth=1e8)
    budget = arrange([program], "liveness", device).arena * 4 // 10
    counts = dict.fromkeys(("least", "bound_whole"), 0)

    def counted(name):
        inner = getattr(Solver, name)

        def call(self, *args):
            counts[name] += 1
            return inner(self, *args)

        return call

    for name in counts:
        monkeypatch.setattr(Solver, name, counted(name))
    result = HostResidents(program, device)
    assert result.within(budget) is not None
    assert counts["least"] <= programs and counts["bound_whole"] == whole
    for each in result._planners.values():
        assert each.evaluator.evaluations < 2 * max(planner.LEAST, planner.WORK // len(program.ops))


def test_programs_without_blocks_are_searched_as_well():
    for name, seed in itertools.product(PROGRAMS, range(2)):
        ev = Evaluator(Index(PROGRAMS[name](), costs(bandwidth=5e8)))
        repair = Repair(ev)
        ev.evaluate(HUGE)
        limit = int((ev.base + ev.view("live", "executions").max()) * 0.8)
        if (before := repair.walk(limit, seed)) is not None:
            assert Search(ev, repair).improve(limit, 200, seed).seconds <= before.seconds
