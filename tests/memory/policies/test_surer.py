"""best, where what copies cost is in doubt: a plan that copies is quicker by more than that, or nothing is copied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidnn.backends import open_device
from minidnn.costs import estimate
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.planning import arrange
from minidnn.memory.policies import find
from minidnn.memory.policies.ours.best import staying
from minidnn.memory.policies.ours.surer import seconds, sends, surer
from tests.support.cuda.fake import fake_device
from tests.support.programs import PROGRAMS, costs
from tests.support.slow import extended_are, usual_are

PARTS = 0.9, 0.75, 0.6


def case(name, part):
    program, device = PROGRAMS[name](), costs(bandwidth=2e9)
    whole = arrange([program], "liveness:p", device).arena
    return program, device, int(whole * part)


@pytest.mark.parametrize("part", extended_are([0.6], PARTS))
@pytest.mark.parametrize("name", usual_are(["chain"], ["chain", "residual"]))
def test_copies_beat_what_stays_by_more_than_the_doubt(name, part):
    program, sure, budget = case(name, part)
    plain = find("best")(program, sure, budget)
    still = staying(program, sure, budget, [find("liveness"), find("recompute_all")])
    assert still is None or not sends(program, still)
    found = set()
    for doubt in (0.01, 0.3, 3.0, 100.0):
        device = replace(sure, doubt=doubt)
        schedule = arrange([program], "best", device, budget).schedules["TRAIN"]
        assert schedule.arena <= budget
        found.add(sends(program, schedule.plan))
        if sends(program, schedule.plan) and still is not None:
            trace = simulate(schedule, device)
            assert trace.seconds + doubt * trace.copying <= seconds(program, device, still) * (1 + 1e-9)
    if still is None:
        assert found == {True}, "nothing else keeps the budget"
    else:
        assert sends(program, plain) in found and False in found


def test_what_counts_is_the_seconds_of_copies_times_the_doubt():
    program, sure, budget = case("chain", 0.75)
    plan = find("vdnn_all:m")(program, sure, budget)
    assert sends(program, plan)
    first, trace = (
        seconds(program, sure, plan),
        simulate(arrange([program], "vdnn_all:m", sure).schedules["TRAIN"], sure),
    )
    assert trace.copying == pytest.approx(sum(s.end - s.start for s in trace.spans if s.stream in ("out", "in")))
    assert seconds(program, replace(sure, doubt=0.5), plan) == pytest.approx(first + 0.5 * trace.copying)


def test_a_plan_is_not_made_twice_where_it_copies_nothing_or_nothing_is_in_doubt():
    program, sure, budget = case("chain", 0.75)
    moving, still = find("vdnn_all:m")(program, sure, budget), find("liveness:m")(program, sure, budget)

    def never():
        raise AssertionError("no plan is asked for")

    assert surer(program, sure, moving, never) is moving
    doubtful = replace(sure, doubt=1e9)
    assert surer(program, doubtful, still, never) is still
    assert surer(program, doubtful, moving, lambda: None) is moving
    bounded = replace(still, bound=7.0)
    taken = surer(program, doubtful, replace(moving, bound=5.0), lambda: bounded)
    assert not sends(program, taken) and taken.bound == 5.0, "the bound is one for plans that copy, too"


def test_no_plan_stays_where_the_budget_is_too_small():
    program, sure, _ = case("chain", 1)
    others = [find("liveness")]
    assert staying(program, sure, 1, others) is None
    plan = find("best")(program, replace(sure, doubt=1.0), 1)
    assert plan.order, "the leanest plan, as without a doubt"
    assert staying(program, sure, 1 << 40, others) is not None


def test_copies_on_the_host_take_turns_with_ops_and_are_in_doubt():
    for name in ("reference", "cpu"):
        host = estimate(open_device(name))
        assert host.drag is not None and min(*host.drag.memory, *host.drag.arithmetic) > 0.9 and host.doubt > 0
    gpu = estimate(fake_device())
    assert gpu.drag is None and gpu.doubt == 0 and gpu.latency < host.latency
