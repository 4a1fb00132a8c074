"""No plan of the product is below the bound that it is compared with, whether its ops run as a whole or in parts."""

from __future__ import annotations

import random

import pytest

from minidnn import L, Net
from minidnn.costs import profile
from minidnn.jobs.outcome import Outcome, add_bound, bound_at, free, outcome
from minidnn.memory.joint.bound import LowerBound
from minidnn.memory.joint.index import Index
from minidnn.memory.parts import parted, regions
from minidnn.memory.policies import BUDGETED, POLICIES, SOME_NETS
from minidnn.memory.policies.papers.poet import NoPlan
from minidnn.program import Program
from minidnn.programs.build import programs
from minidnn.programs.fusion import as_cuda
from minidnn.programs.spec import TrainSpec
from tests.support.policies import CHOOSING, SOLVED

SUFFIXED = [f"{name}:{algorithms}" for name in POLICIES if name not in (*SOME_NETS, *SOLVED) for algorithms in "mp"]
BUDGETS = 0.5, 0.7, 1.0  # of the whole's arena
SMALL = 1 << 14  # bytes of the largest tensor of a part, in nets as small as these


def random_net(seed: int) -> Program:
    """A net of some convolutions, BatchNorms, joins and poolings, at a batch that 2 or 3 may divide."""
    r = random.Random(seed)

    class Random(Net):
        def define(self):
            size = f"synthetic:{r.choice([3, 16])}x32x32"
            x, label = L.Data(source=size, batch_size=r.choice([4, 6, 8]))
            for _ in range(r.randint(2, 4)):
                channels = r.choice([8, 16, 32])
                x = y = L.Convolution(x, num_output=channels, kernel_size=r.choice([1, 3, 5]))
                if r.random() < 0.5:
                    x = L.Scale(L.BatchNorm(x), bias_term=True)
                if r.random() < 0.3:
                    x = L.Eltwise(x, y)
                x = L.ReLU(x, in_place=True) if r.random() < 0.6 else x
                x = L.Pooling(x, kernel_size=2, stride=2) if r.random() < 0.3 else x
            L.SoftmaxWithLoss(L.InnerProduct(x, num_output=10), label)

    made = programs(Random(), TrainSpec(), ("TRAIN",), fuses=as_cuda)
    return made["TRAIN"].synchronous_inputs()


def compared(program: Program, policy: str, budget: int) -> Outcome:
    """What comes of the policy, with its bound."""
    one = outcome([program], policy, profile("titan_x"), budget)
    add_bound(one, program, budget)
    return one


def judged(seed: int) -> list[bool]:
    """For each plan of a random net that has a bound, whether it is in parts. None is below its bound."""
    r, result, program = random.Random(seed), [], random_net(seed)
    whole = free([program], profile("titan_x")).arrangement.arena
    for policy in (*CHOOSING, *SUFFIXED, *SOLVED):
        for at in ("", f"@{r.choice([2, 3, 4, 5])}"):
            try:
                one = compared(program, policy + at, int(whole * r.choice(BUDGETS)))
            except NoPlan:
                assert policy == "poet", "others plan programs of any length"
                continue
            if one.gap is not None:
                assert one.gap >= 0, (seed, policy + at, one.seconds, one.bound)
                result.append(bool(one.schedule.program.parts))
    return result


@pytest.mark.extended
def test_no_plan_of_a_random_net_is_below_its_bound(monkeypatch):
    monkeypatch.setattr(regions, "LEAST", SMALL)
    plans = [parts for seed in range(4) for parts in judged(seed)]
    assert len(plans) > 130 and sum(plans) > 50, "plans, and of them those in parts"


def test_best_is_in_parts_where_these_shrink_workspaces_alone(monkeypatch):
    """As a whole its worst op is none that could run in parts."""
    monkeypatch.setattr(regions, "LEAST", SMALL)
    program, device = random_net(6), profile("titan_x")
    budget = int(free([program], device).arrangement.arena * 0.4)
    assert not list(regions.leaner(program))
    whole, parts = compared(program, f"{BUDGETED}@1", budget), compared(program, BUDGETED, budget)
    assert parts.schedule.program.parts and parts.seconds < whole.seconds
    assert whole.bound == parts.bound


def test_the_bound_of_a_plan_is_of_its_own_parts_too():
    program, device = random_net(0), profile("titan_x")
    assert not list(regions.candidates(program)), "it is too small"
    made = parted(program, regions.in_equal_parts(program, 3))
    budget = int(free([program], device).arrangement.arena * 0.7)
    whole, own = bound_at(program, device, budget, None, ()), LowerBound(Index(made, device)).closest(budget)
    assert bound_at(program, device, budget, None, made.parts).seconds == min(whole.seconds, own.seconds)
