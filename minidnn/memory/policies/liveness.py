"""Liveness: a tensor holds bytes from its first access to its last, and nothing ever leaves the device.

What every framework with a caching allocator does at best, and the ground on which the others build.
"""

from __future__ import annotations

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, in_place_sharing
from minidnn.program import Algorithm, Op, Program


def liveness(program: Program, costs: Costs, budget: int | None = None, algorithms: str = "m") -> Plan:
    return Plan(algorithm=choose(program, costs, algorithms), share=in_place_sharing(program))


def choose(program: Program, costs: Costs, algorithms: str) -> dict[Op, Algorithm]:
    """Every op's algorithm of least workspace ("m") or of least time ("p")."""
    pick = costs.least_memory if algorithms == "m" else costs.fastest
    return {op: pick(op) for op in program.ops}
