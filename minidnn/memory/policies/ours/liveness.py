"""Liveness: a tensor holds bytes from its first access to its last, and nothing ever leaves the device.

A framework with a caching allocator reaches this at best. The other policies build on it.
"""

from __future__ import annotations

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, in_place_sharing
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.program import Program


def liveness(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """A tensor takes memory from first to last access."""
    return Plan(algorithm=choose(program, costs, algorithms), share=in_place_sharing(program))
