"""Outcomes of policies within budgets, the bounds that are kept, and work in processes."""

import signal
from types import SimpleNamespace

import pytest

from minidnn.jobs.outcome import WHOLE, Outcome, add_bound, bound_at, bounds, free, nearest, outcome
from minidnn.jobs.processes import Processes, result
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.joint.variants import ProgramVariants
from tests.support.programs import chain, costs


def test_an_outcome_is_a_plan_or_the_refusal():
    p = chain()
    kept = outcome([p], "baseline:m", costs())
    budget = kept.arrangement.arena - 1
    refused = outcome([p], "baseline:m", costs(), budget)
    assert kept.fits and kept.why is None and kept.seconds == simulate(kept.schedule, costs()).seconds
    assert not refused.fits and "the budget is" in refused.why and refused.refused.smallest > budget
    with pytest.raises(BudgetError):
        refused.schedule  # noqa: B018
    near = nearest([p], "baseline:m", costs(), budget)
    assert not near.fits and near.arrangement.arena == kept.arrangement.arena and near.why == refused.why


def test_an_outcome_counts_what_a_step_copies_and_repeats():
    p = chain()
    away = outcome([p], "vdnn_all:m", costs())
    assert away.moved == away.copies["offload_bytes"] + away.copies["prefetch_bytes"] > 0 == away.recomputed
    assert outcome([p], "sqrt_n", costs()).recomputed > 0 == outcome([p], "liveness:m", costs()).moved


def test_a_bound_is_computed_once_and_only_for_what_keeps_the_budget(monkeypatch):
    asked, closest = [], ProgramVariants.closest
    monkeypatch.setattr(
        ProgramVariants, "closest", lambda self, budget, more: (asked.append(budget), closest(self, budget, more))[1]
    )
    p, c = chain(), costs()
    budget = outcome([p], "liveness:m", c).arrangement.arena
    families = bounds.cache_info().misses
    kept, refused = outcome([p], "liveness:m", c, budget), nearest([p], "baseline:m", c, budget)
    for _ in range(2):
        for one in (kept, refused):
            add_bound(one, p, budget)
    assert asked == [budget] and refused.bound is None
    assert kept.bound == bound_at(p, c, budget, None, ()).seconds and kept.gap == pytest.approx(
        kept.seconds / kept.bound - 1
    )
    add_bound(any_bytes := outcome([p], "liveness:m", c), p, None)
    assert any_bytes.bound is None and asked == [budget]
    assert bounds(p, c, None).least() <= budget and bounds.cache_info().misses == families + 1, "it is one family"


def test_a_plan_whose_ops_the_host_runs_has_no_bound():
    schedule = SimpleNamespace(plan=SimpleNamespace(host_ops={"an op"}))
    one = Outcome("any", SimpleNamespace(schedules={"TRAIN": schedule}), costs())
    one.set_bound(1.0)
    assert one.bound is None and one.gap is None


def test_the_whole_moves_nothing():
    """Parts of budgets are parts of its arena."""
    loose = free([chain()], costs())
    assert loose.moved == 0 and loose.policy == WHOLE


def added(held, number):
    return held + number


def fails(held):
    raise ZeroDivisionError("of the test")


def ends(held):
    signal.raise_signal(signal.SIGKILL)


@pytest.mark.parametrize("count", [1, 2])
def test_processes_have_what_is_held_here(count):
    processes = Processes(count, 40)
    futures = [processes.submit(added, number) for number in range(4)]
    assert [result(future, str) for future in futures] == [40, 41, 42, 43]
    processes.close()


def test_what_a_process_raises_is_raised_here_and_one_that_ends_is_told():
    processes = Processes(2, None)
    with pytest.raises(ZeroDivisionError, match="of the test"):
        result(processes.submit(fails), str)
    assert "has ended; if memory ran out" in result(processes.submit(ends), str)
    assert "has ended" in result(processes.submit(fails), str), "there is none left"
    processes.close()
