"""A policy over ops that run in parts of the batch: "NAME@N" (memory/parts/).

Each op with a tensor larger than an N-th of the largest one runs in N parts. If N does not divide the batch, the next
number below 2 N that does is taken. The policy plans the program that comes of it. All parts of an op have one
algorithm, as the op
itself would: where the policy gives them several, the one with the least workspace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minidnn.costs import Costs
from minidnn.memory.parts import parted
from minidnn.memory.parts.regions import in_equal_parts
from minidnn.memory.plan import Plan, Policy
from minidnn.program import Algorithm, Op, Program


def in_parts(count: int, decide: Policy) -> Policy:
    """The policy over a program whose large ops run in `count` parts; 1: as a whole."""

    def decided(program: Program, costs: Costs, budget: int) -> Plan:
        parts = () if count == 1 else in_equal_parts(program, count)
        if not parts:
            return decide(program, costs, budget)
        made = parted(program, parts)
        plan = decide(made, costs, budget)
        return replace(plan, program=made, algorithm=alike(plan.algorithm))

    return decided


def alike(algorithm: Mapping[Op, Algorithm]) -> dict[Op, Algorithm]:
    """The algorithms, with one for all parts of an op: of several the one with the least workspace."""
    least: dict[Op, Algorithm] = {}
    for op, a in algorithm.items():
        if op.part is not None:
            known = least.setdefault(op.part.of, a)
            if a.workspace < known.workspace:
                least[op.part.of] = a
    return {op: a if op.part is None else least[op.part.of] for op, a in algorithm.items()}
