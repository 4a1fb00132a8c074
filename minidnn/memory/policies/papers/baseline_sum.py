"""The sum of all tensors, which SuperNeurons compares itself with (Wang et al., PPoPP 2018, section 3.1).

    baseline = tensors that layers write in forward + tensors that layers write in backward

Every tensor has bytes of its own for the whole step, except where the memory facts say that it lies in place. A
convolution's workspace is allocated only while it runs, as in the paper, where it takes the bytes that are left.
"""

from __future__ import annotations

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, in_place_sharing
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.program import Program


def baseline_sum(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Each tensor has bytes of its own for the whole step."""
    share, persistent = in_place_sharing(program), set(program.persistent)
    hold = frozenset(t for t in program.tensors if t not in share and t not in persistent)
    return Plan(algorithm=choose(program, costs, algorithms), share=share, hold=hold)
