"""best is within 2 % of the quickest plan of all, on nets so small that all decisions can be tried."""

from __future__ import annotations

from itertools import product
from math import inf

import pytest

from benchmarks.exhaustive import gap, rows
from minidnn.costs import Costs
from minidnn.memory.planning import unproved
from minidnn.program import Program
from tests.support.exhaustive import Exhaustive, certified
from tests.support.exhaustive.nets import DEVICES, NETS, at_random, device, training

NEAR = 0.02  # the part by which best may take longer
FEW = 120_000  # combinations of decisions about one net


PLANS = 2000  # of quick tests


def small() -> tuple[Program, Costs, list[int]]:
    """A program, a device, and budgets."""
    program, costs = training(NETS["chain"]), device("titan_x", 1.0)
    arena = unproved([program], "liveness:p", costs, 1 << 60)["TRAIN"].arena
    return program, costs, [int(arena * part) for part in (0.9, 0.8, 0.7)]


@pytest.mark.parametrize("pins", [True, False])
def test_combinations_that_are_left_out_are_not_quicker(pins):
    program, costs, budgets = small()
    some = Exhaustive(program, costs, PLANS, pins)
    found = some.quickest(dict.fromkeys(budgets, inf))
    again = Exhaustive(program, costs, PLANS, pins)
    again.quickest({budget: quickest.seconds for budget, quickest in found.items()})
    assert 1 < again.evaluated < some.plans <= PLANS
    ev, best = some.evaluator, dict.fromkeys(budgets, inf)
    for combination in product(*some.options):
        ev.fate[some.gaps], ev.pin_from[some.gaps] = zip(*combination, strict=True)
        for budget in budgets:
            best[budget] = min(best[budget], ev.evaluate(budget).seconds)
    assert {budget: quickest.seconds for budget, quickest in found.items()} == pytest.approx(best)
    assert len(set(best.values())) > 1, "not each budget has the same plan"


def test_a_plan_that_is_known_stays_unless_another_is_quicker():
    program, costs, (_, budget, _) = small()
    quickest = Exhaustive(program, costs, PLANS).quickest({budget: inf})[budget]
    assert quickest.plan is not None
    assert certified(program, costs, quickest.plan, budget) == quickest.seconds
    again = Exhaustive(program, costs, PLANS).quickest({budget: quickest.seconds})[budget]
    assert again.plan is None and again.seconds == quickest.seconds
    beaten = Exhaustive(program, costs, PLANS).quickest({budget: quickest.seconds * 1.001})[budget]
    assert beaten.plan is not None and beaten.seconds == quickest.seconds


@pytest.mark.slow
def test_best_is_near_the_quickest_plan_of_all():
    found = list(rows("chain", NETS["chain"], "h100", 0.3, False, FEW, (0.6,)))
    assert [gap(row) for row in found] == [pytest.approx(0, abs=NEAR)] and found[0]["plans"] > 100_000


@pytest.mark.extended
@pytest.mark.parametrize("name", [*NETS, *range(2)])
def test_best_is_near_the_quickest_plan_of_all_everywhere(name, record_property):
    body = at_random(name) if isinstance(name, int) else NETS[name]
    cases = [list(rows(str(name), body, gpu, link, fastest, FEW)) for gpu, link in DEVICES for fastest in (False, True)]
    found = [row for case in cases for row in case]
    gaps = [g for row in found if (g := gap(row)) is not None]
    record_property("plans tried", sum(case[0]["plans"] for case in cases if case))
    record_property("budgets at which best was compared with the quickest plan", len(gaps))
    record_property("told", f"best on {name}: at most {max(gaps):.2%} above the quickest of all")
    assert len(gaps) >= 12
    for row in found:
        assert (gap(row) or 0) <= NEAR, row
