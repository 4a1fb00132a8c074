"""Checkmate and MONeT: optimal where that can be enumerated, within budgets, and equal bytes."""

from __future__ import annotations

from itertools import combinations

import pytest

from minidnn.memory.budget import BudgetError
from minidnn.memory.plan import Plan
from minidnn.memory.planning import arrange
from minidnn.memory.policies import find
from minidnn.memory.policies.papers.checkmate_graph import Graph
from minidnn.memory.policies.shared import probe
from minidnn.memory.policies.shared.algorithms import choose
from minidnn.memory.policies.shared.orders import in_place, makers, on_demand
from tests.support.programs import KB, chain, costs, normed, random_graph

INF = float("inf")


def seconds(plan, device):
    return sum(device.seconds(op, plan.algorithm[op]) for op in plan.order)


def every_choice(program, device, budget):
    """The seconds of all plans that keep the budget, drop some tensors of forward, and make these again on demand."""
    make, algorithm = makers(program, device), choose(program, device, "m")
    read = {t for op in program.ops[program.forward :] for t in op.reads}
    able = [t for t in make if t in read]
    for n in range(len(able) + 1):
        for dropped in combinations(able, n):
            order = on_demand(program, make, set(dropped))
            plan = Plan(order, algorithm=algorithm, share=in_place(program, order))
            if probe.fits(program, device, plan, budget):
                yield seconds(plan, device)


@pytest.mark.parametrize(("program", "kib"), [(chain(4), 280), (chain(4), 340), (normed(2), 400)])
def test_no_choice_of_what_forward_keeps_is_quicker(program, kib):
    device, budget = costs(), kib * KB
    plan = find("checkmate:m")(program, device, budget)
    assert probe.fits(program, device, plan, budget)
    assert len(plan.order) > len(program.ops), "something has to run again"
    assert seconds(plan, device) <= min(every_choice(program, device, budget), default=INF) * (1 + 1e-9)


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(2))
def test_monet_is_no_slower_than_checkmate_with_the_leanest_or_the_fastest_algorithms(seed):
    program, device = random_graph(seed, 8), costs()
    with pytest.raises(BudgetError) as refused:
        arrange([program], "monet", device, 1)
    most = arrange([program], "liveness:p", device).arena
    for part in (0.3, 0.6):
        budget = int(refused.value.smallest + part * (most - refused.value.smallest))
        found = seconds(find("monet")(program, device, budget), device)
        for name in ("checkmate:m", "checkmate:p"):
            other = find(name)(program, device, budget)
            if probe.fits(program, device, other, budget):
                assert found <= seconds(other, device) * 1.02


def test_equal_calls_give_equal_plans():
    plans = [find("monet")(normed(), costs(), 450 * KB) for _ in range(2)]
    assert [op.name for op in plans[0].order] == [op.name for op in plans[1].order]


def test_neighbours_are_joined_until_few_are_left_and_nothing_is_lost():
    program, device = normed(5), costs()
    own = Plan(program.ops, algorithm=choose(program, device, "m"), share=in_place(program, program.ops))
    fine, rough = (Graph(program, device, own, most) for most in (100, 6))
    assert len(rough.nodes) == len(rough.stages) == 6 < len(fine.nodes)
    for graph in (fine, rough):
        assert [p for lo, hi in graph.nodes + graph.stages for p in range(lo, hi)] == list(range(len(program.ops)))
        assert graph.order(lambda s, v: True) == program.ops
        assert set(graph.order(lambda s, v: False)) == set(program.ops)
