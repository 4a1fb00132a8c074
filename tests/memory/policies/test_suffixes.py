""" ":m" and ":p" name the same algorithms for every policy, in parts, too: so all policies end with the same bytes."""

from __future__ import annotations

from functools import cache

import pytest

import minidnn
from minidnn.costs import Choice, Costs
from minidnn.memory.planning import arrange
from minidnn.memory.policies import POLICIES, SOME_NETS, find
from minidnn.memory.policies.shared.algorithms import choose
from minidnn.optimizers import SGD
from minidnn.program import Algorithm, Op
from minidnn.programs.build import programs
from minidnn.programs.fusion import as_cuda
from minidnn.programs.spec import TrainSpec
from tests.support.op_examples import compiled
from tests.support.paths import NET_FILES
from tests.support.slow import usual_are, usual_pairs
from tests.support.trains import train

NET = "blocks"
TRAININGS = ["reference:m", "reference:m@2", "reference:m@8", "cpu:m", "cpu:p", "cpu:p@2", "cpu:p@8"]
core = cache(compiled)  # one core of the CPU: the work is small


@pytest.mark.parametrize("case", usual_are(["reference:m", "cpu:m", "cpu:p@2"], TRAININGS))
def test_every_policy_ends_with_the_bytes_of_baseline(case):
    name, _, suffix = case.partition(":")
    device = core() if name == "cpu" else name
    first = train(NET, device, f"baseline:{suffix}")
    for policy in POLICIES.keys() - SOME_NETS:
        assert train(NET, device, f"{policy}:{suffix}") == first, policy


def choices(op: Op) -> tuple[Choice, ...]:
    """Every op may take a workspace, also one that the host could run."""
    return Choice(Algorithm("lean"), 2e-4), Choice(Algorithm("fast", op.nbytes), 1e-4)


TOY = Costs("toy", 1 << 40, 1e9, 1e9, choices, by_host=lambda op: 1e-4)


@cache
def program():
    net = minidnn.load(NET_FILES / f"{NET}.yaml")
    return programs(net, TrainSpec(SGD(momentum=0.9)), ("TRAIN",), fuses=as_cuda)["TRAIN"]


@pytest.mark.parametrize(
    ("policy", "suffix"), usual_pairs(sorted(POLICIES.keys() - SOME_NETS), [":m", ":p", ":m@2", ":p@8"])
)
def test_the_algorithms_are_those_of_the_suffix_whatever_the_budget(policy, suffix):
    for budget in (arrange([program()], "baseline:p", TOY).arena, 0):
        plan = find(policy + suffix, budgeted=True)(program(), TOY, budget)
        assert plan.algorithm == choose(plan.program or program(), TOY, suffix[1])
