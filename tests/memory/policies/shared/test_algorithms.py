""" ":f", the fastest algorithms that fit the budget: for every policy that takes ":m" and ":p"."""

from __future__ import annotations

from functools import lru_cache

import pytest

from minidnn import zoo
from minidnn.costs import Choice, profile
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.planning import arrange
from minidnn.memory.policies import POLICIES, find, names
from minidnn.memory.policies.shared.algorithms import fastest_within, live_beside
from minidnn.program import Algorithm
from minidnn.programs.build import programs
from tests.support.oracle import broken
from tests.support.programs import PROGRAMS, chain, costs, transformer

MIB = 1 << 20


def taken(program, policy, prices, budget=1 << 60):
    """(arena, seconds) of a step, proved; None: refused."""
    try:
        schedule = arrange([program], policy, prices, budget).schedules["TRAIN"]
    except BudgetError:
        return None
    return schedule.arena, simulate(schedule, prices).seconds


@pytest.mark.extended
@pytest.mark.parametrize("policy", POLICIES)
def test_keeps_every_budget_that_the_leanest_keep_and_is_never_slower(policy):
    program, prices = transformer(1) if policy == "selective" else PROGRAMS["inception"](), costs()
    lean, most = (arrange([program], f"{policy}:{a}", prices).arena for a in "mp")
    least = arrange([program], f"{policy}:m", prices).arena
    before = None
    for budget in (lean, (lean + most) // 2, most, 2 * most):
        arena, seconds = taken(program, f"{policy}:f", prices, budget)
        assert arena <= budget
        of_m = taken(program, f"{policy}:m", prices, budget)
        of_p = taken(program, f"{policy}:p", prices, budget)
        assert seconds <= min(t[1] for t in (of_m, of_p) if t is not None) * (1 + 1e-9)
        assert before is None or seconds <= before * (1 + 1e-9), "more memory, no more time"
        before = seconds
    assert (arena, seconds) == pytest.approx(taken(program, f"{policy}:p", prices, budget))
    refused = taken(program, f"{policy}:f", prices, min(least, lean) // 2)
    assert refused is None or refused[0] <= min(least, lean) // 2


def test_a_bare_name_is_f():
    program, prices = chain(4), costs()
    budget = arrange([program], "vdnn_all:m", prices).arena + 30 * 1024
    one, two = (arrange([program], name, prices, budget).schedules["TRAIN"] for name in ("vdnn_all", "vdnn_all:f"))
    assert str(one) == str(two) and broken(one) is None
    for name in names():
        find(name)


def test_a_refusal_names_the_leanest():
    program, prices = chain(4), costs()
    least = arrange([program], "liveness:m", prices).arena
    with pytest.raises(BudgetError) as refused:
        arrange([program], "liveness", prices, least - 1)
    assert refused.value.needed == refused.value.smallest == least
    arrange([program], "liveness", prices, refused.value.smallest)


def test_some_take_fast_algorithms_and_some_lean_ones_where_not_all_fit():
    program, prices = chain(4), costs()
    lean, most = (arrange([program], f"liveness:{a}", prices).arena for a in "mp")
    algorithm = arrange([program], "liveness", prices, (lean + most) // 2).schedules["TRAIN"].plan.algorithm
    of = {a: find(f"liveness:{a}")(program, prices, 1 << 60).algorithm for a in "mp"}
    differ = [op for op in program.ops if of["m"][op] != of["p"][op]]
    assert {algorithm[op] == of["p"][op] for op in differ} == {True, False}


def test_fastest_within_by_hand():
    op, other = chain(1).ops[:2]
    choices = {op: [(0, 3.0), (100, 2.0), (300, 1.0), (200, 1.0)], other: [(0, 1.0)]}
    prices = costs()
    offered = {o: tuple(Choice(Algorithm(f"a{ws}", ws), s) for ws, s in some) for o, some in choices.items()}
    prices = type(prices)("d", 1 << 30, 1e9, 1e9, lambda o: offered[o])
    least = {o: prices.least_memory(o) for o in (op, other)}
    live = live_beside([op, other, op], [50, 60, 80], least)
    assert live == {op: 80, other: 60}
    for room, name in ((80, "a0"), (179, "a0"), (180, "a100"), (280, "a200"), (1000, "a200")):
        assert fastest_within(prices, least, live, room)[op].name == name, room
    assert fastest_within(prices, least, live, 10)[other].name == "a0", "where nothing fits it stays"


@lru_cache
def vgg16():
    return tuple(programs(zoo.load("vgg16", 64), None, ("TRAIN",)).values())


@pytest.mark.extended
def test_vgg16_in_seventy_per_cent_of_what_the_fastest_take():
    """Each ":p" is refused there; of what ":m" can keep, ":f" takes seven tenths of the time or less."""
    card = profile("titan_x")
    budget = int(0.7 * arrange(vgg16(), "liveness:p", card, 1 << 60).arena)
    for policy in ("vdnn_all", "vdnn_conv", "vdnn_pp", "superneurons_cost_aware", "accudnn", "sqrt_n", "recompute_all"):
        assert taken(vgg16()[0], f"{policy}:p", card, budget) is None
        _, lean = taken(vgg16()[0], f"{policy}:m", card, budget)
        arena, seconds = taken(vgg16()[0], policy, card, budget)
        assert arena <= budget and seconds < 0.7 * lean, policy
