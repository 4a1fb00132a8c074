"""Copies back that begin as soon as their bytes are free: none begins later, and all waits that bytes need are
there."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from minidnn.costs import Costs
from minidnn.memory import planning
from minidnn.memory.execution.poison import fillable
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.lowering.asap import asap
from minidnn.memory.plan import OffloadInterval, Plan
from minidnn.memory.planning import arrange
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.memory.schedule import Free, Schedule, Wait
from tests.support.decisions import placed, schedule_at_random
from tests.support.mutate import without
from tests.support.oracle import broken
from tests.support.programs import PROGRAMS, chain, costs, normed, wild_graph


def starts(schedule, device) -> dict[str, float]:
    """When each copy back begins."""
    spans = simulate(schedule, device).spans
    return {repr(schedule.instructions[s.index].residency): s.start for s in spans if s.stream == "in"}


def late() -> tuple[Schedule, Costs]:
    """A schedule in which relu0.y comes back when it is read, though nothing else takes its bytes."""
    program, device = chain(4), costs(bandwidth=4e8)
    y = next(t for t in program.tensors if t.name == "relu0.y")
    uses = [p for p, op in enumerate(program.ops) if y in op.tensors]
    last, use = next((p, q) for p, q in pairwise(uses) if q > p + 5)
    schedule = placed(program, device, Plan(offloads=(OffloadInterval(y, last + 1, last + 2, use, use),)))
    back = next(b for b in schedule.buffers if b.label == "relu0.y#1")
    top = schedule.arena
    return replace(schedule, offset={**schedule.offset, back: top}, arena=top + back.nbytes), device


def test_a_copy_back_begins_when_its_bytes_are_free():
    schedule, device = late()
    found = asap(schedule)
    verify(found)
    before, after = starts(schedule, device), starts(found, device)
    out = next(s for s in simulate(found, device).spans if s.stream == "out")
    assert after["relu0.y#1"] == pytest.approx(out.end) and before["relu0.y#1"] > out.end
    assert simulate(found, device).seconds < simulate(schedule, device).seconds


@pytest.mark.parametrize("seed", range(4))
def test_no_copy_back_begins_later_and_the_proof_and_the_oracle_accept_it(seed):
    r, sooner = random.Random(seed), 0
    for program in (PROGRAMS["residual"](2), normed(), PROGRAMS["inception"](1), wild_graph(2, 7)):
        device = costs(bandwidth=r.choice([2e8, 2e9]))
        schedule = schedule_at_random(program, device, r)
        found = asap(schedule)
        verify(found)
        assert broken(found) is None
        assert sorted((b.label, at) for b, at in found.offset.items()) == sorted(
            (b.label, at) for b, at in schedule.offset.items()
        )
        before, after = starts(schedule, device), starts(found, device)
        assert all(after[copy] <= before[copy] + 1e-12 for copy in before)
        sooner += after != before
    assert sooner


def test_a_wait_that_is_left_is_needed():
    """The bytes are known, so each wait of a copy back but those that a later one implies is needed for the proof."""
    r = random.Random(3)
    needed = 0
    for _ in range(6):
        found = asap(schedule_at_random(normed(), costs(bandwidth=2e8), r))
        for i, x in enumerate(found.instructions):
            if isinstance(x, Wait) and x.stream == "in":
                changed = without(found, i)
                wrong = broken(changed) is not None
                needed += wrong
                if wrong:
                    with pytest.raises(ScheduleError):
                        verify(changed)
    assert needed > 20


def test_bytes_that_a_copy_back_may_be_writing_are_not_filled():
    """Such copies back are more where they begin as soon as possible."""
    r, left = random.Random(1), []
    for program in (PROGRAMS["residual"](2), normed(), wild_graph(2, 7)):
        schedule = schedule_at_random(program, costs(bandwidth=2e8), r)
        frees = sum(isinstance(x, Free) for x in schedule.instructions)
        left.append([frees - len(fillable(s)) for s in (schedule, asap(schedule))])
    assert all(plain <= found for plain, found in left)
    assert any(plain < found for plain, found in left)


def test_best_is_eager_and_not_slower_for_it():
    program, device = PROGRAMS["residual"](3), costs(bandwidth=4e8)
    whole = arrange([program], "liveness:p", device).arena
    schedule = arrange([program], "best", device, whole * 6 // 10).schedules["TRAIN"]
    assert schedule.plan.asap
    plain = placed(program, device, replace(schedule.plan, asap=False))
    assert simulate(schedule, device).seconds <= simulate(plain, device).seconds


def test_copies_keep_their_points_where_the_step_would_take_longer(monkeypatch):
    slow, device = late()
    quick = asap(slow)
    assert simulate(planning._asap(slow, device), device).seconds == simulate(quick, device).seconds
    monkeypatch.setattr(planning, "asap", lambda schedule: slow)
    assert planning._asap(quick, device) is quick
