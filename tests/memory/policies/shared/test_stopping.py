"""sqrt_n and recompute_cheap under a budget: no more runs than it needs, and never slower than the paper's plan."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minidnn
from minidnn.costs import profile
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.planning import arrange
from minidnn.memory.policies import STOPPING, find
from minidnn.memory.policies.papers.sqrt_n import Forward, segmented, sqrt_n
from minidnn.memory.policies.papers.sqrt_n import _cuts as cuts_of
from minidnn.memory.policies.shared import probe
from minidnn.memory.policies.shared.recompute import Repeatable
from minidnn.optimizers import SGD
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from minidnn.zoo import load
from tests.memory.policies.shared.test_recompute import NET
from tests.support.examples import examples
from tests.support.oracle import broken
from tests.support.programs import costs, wild_graph
from tests.support.slow import usual_are

NAMES = [f"{policy}:{algorithms}" for policy in STOPPING for algorithms in "mpf"]
CARD = profile("titan_x")


@lru_cache
def program(name="resnet20", batch=32):
    return programs(load(name, batch), TrainSpec(SGD(momentum=0.9)), ("TRAIN",))["TRAIN"]


def planned(policy, budget, p=None):
    """The schedule, proved, and the seconds of its step."""
    s = arrange([p or program()], policy, CARD, budget).schedules["TRAIN"]
    return s, simulate(s, CARD).seconds


@lru_cache
def smallest(policy):
    """The smallest budget that the policy keeps."""
    with pytest.raises(BudgetError) as refused:
        planned(policy, 1)
    return refused.value.smallest


@lru_cache
def fulls(policy):
    """The policy's leanest plan, placed, and the seconds of its step."""
    return planned(policy, smallest(policy))


@lru_cache
def whole(algorithms):
    """Liveness's arena: nothing runs again."""
    return arrange([program()], f"liveness:{algorithms}", CARD).arena


def runs(s):
    return len(s.plan.order) - len(s.program.ops)


@pytest.mark.parametrize("policy", NAMES)
def test_without_a_budget_the_plan_is_the_papers(policy):
    s, _ = planned(policy, None)
    assert s.plan.order == find(policy)(program(), CARD, CARD.memory).order
    assert runs(s) > 0 and s.arena < whole("m")


@pytest.mark.parametrize("policy", usual_are(["sqrt_n:m"], ["sqrt_n:m", "recompute_cheap:p", "recompute_cheap:f"]))
def test_more_memory_takes_fewer_runs_and_never_more_time_than_the_full_plan(policy):
    (full, longest), least = fulls(policy), smallest(policy)
    most = whole("m" if policy.endswith("m") else "p")
    before, times = runs(full), []
    for k in range(5):
        budget = least + (most - least) * k // 4
        s, seconds = planned(policy, budget)
        assert s.arena <= budget
        assert seconds <= longest * (1 + 1e-9)
        assert runs(s) <= before
        before = runs(s)
        times.append(seconds)
    assert runs(s) == 0, "nothing runs again where all fits"
    assert times[2] < 0.97 * times[0] and times[4] < times[2]


@pytest.mark.parametrize("policy", usual_are(["sqrt_n:m", "recompute_cheap:m"], NAMES))
def test_below_the_full_plan_it_refuses_and_names_the_full_plans_bytes(policy):
    full, _ = fulls(policy)
    with pytest.raises(BudgetError) as refused:
        planned(policy, full.arena - 1)
    named = refused.value.smallest
    assert f"the smallest budget {policy} can keep is {named} bytes" in str(refused.value)
    assert full.arena <= named <= 1.01 * full.arena  # a quicker plan may pack more tightly than the full one
    if not policy.endswith("f"):
        assert named == probe.arena(program(), CARD, find(policy)(program(), CARD, CARD.memory))


def test_the_same_budget_gives_the_same_listing():
    budget = (fulls("sqrt_n:m")[0].arena + whole("m")) // 2
    for policy in ("sqrt_n:m", "recompute_cheap:m"):
        assert str(planned(policy, budget)[0]) == str(planned(policy, budget)[0])


@pytest.mark.extended
def test_the_segments_that_run_again_are_about_the_cheapest_that_would_do():
    """Against every choice of segments."""
    p = program()
    full = sqrt_n(p, CARD, 0, "m")
    forward = Forward(Repeatable(p, full.share))
    cuts = cuts_of(forward)
    assert 4 < len(cuts) < 10
    tried = []
    for some in chain.from_iterable(combinations(range(len(cuts)), n) for n in range(len(cuts) + 1)):
        plan = replace(full, order=segmented(forward, cuts, set(some)))
        seconds = sum(CARD.seconds(op, plan.algorithm[op]) for op in plan.order)
        tried.append((probe.arena(p, CARD, plan), seconds))
    least = probe.arena(p, CARD, full)
    for k in range(1, 8):
        budget = least + (whole("m") - least) * k // 8
        best = min(seconds for nbytes, seconds in tried if nbytes <= budget)
        order = planned("sqrt_n:m", budget)[0].plan.order
        assert sum(CARD.seconds(op, full.algorithm[op]) for op in order) <= 1.02 * best


@pytest.mark.parametrize("policy", ["sqrt_n:m", "recompute_cheap:m", "recompute_cheap:p"])
@given(st.integers(0, 1 << 30), st.integers(2, 14), st.floats(0, 1))
@examples(15)
def test_any_wild_graph_is_right_under_any_budget(policy, seed, layers, part):
    p = wild_graph(seed, layers)
    least = arrange([p], policy, costs()).arena
    most = max(least, arrange([p], "liveness:" + policy[-1], costs()).arena)
    budget = least + int((most - least) * part)
    s = arrange([p], policy, costs(), budget).schedules["TRAIN"]
    assert s.arena <= budget and broken(s) is None
    full = arrange([p], policy, costs()).schedules["TRAIN"]
    assert simulate(s, costs()).seconds <= simulate(full, costs()).seconds * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["sqrt_n:m", "sqrt_n:p", "recompute_cheap:m", "recompute_cheap:p"])
def test_a_budget_in_between_trains_to_the_same_bytes(policy):
    """With dropout masks and running statistics, freed bytes poisoned."""

    def trained(name, budget=None):
        random = np.random.default_rng(7)
        data = random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 24).astype(np.int32)
        with minidnn.Solver(
            minidnn.Net.from_text(NET), policy=name, device="reference", seed=3, data=data, debug=True, budget=budget,
            base_lr=0.02, momentum=0.9, lr_policy="fixed", max_iter=9,
        ) as solver:  # fmt: skip
            losses = [solver.step().loss for _ in range(3)]
            found = solver.arrangement.schedules["TRAIN"]
            return losses, {k: v.tobytes() for k, v in solver.values().items()}, runs(found), found.arena

    losses, values, none, most = trained("liveness:" + policy[-1])
    *_, all_runs, least = trained(policy)
    again = set()
    for k in (1, 2, 3):
        same_losses, same_values, some, _ = trained(policy, least + (most - least) * k // 4)
        again.add(some)
        assert (same_losses, same_values) == (losses, values)
    assert none == 0 and any(0 < some < all_runs for some in again)
