"""The baseline: network-wide allocation, which vDNN's paper compares itself with (Rhu et al., MICRO 2016, IV-A).

    base = weights + every feature map once (ReLU in place) + 2 x the largest gradient map + the largest workspace

Each feature map keeps its bytes for the whole step. Gradient maps take turns in slots, each as large as the largest
map. A chain needs two slots (dX and dY), other graphs as many as maps are alive at once. Weight gradients are held too;
the paper leaves them out of its bars.
"""

from __future__ import annotations

from minidnn.costs import Costs
from minidnn.memory.lowering.lower import group, residencies_of
from minidnn.memory.plan import Plan, Share, Slot, complete, in_place_sharing
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.schedule import Buffer
from minidnn.program import Program, Role

HELD = frozenset({Role.INPUT, Role.LABEL, Role.CONTROL, Role.COPY, Role.ACTIVATION, Role.EXTRA, Role.PARAM_GRADIENT})


def baseline(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Each feature map keeps its bytes for the whole step."""
    algorithm = choose(program, costs, algorithms)
    share = in_place_sharing(program)
    persistent = set(program.persistent)
    hold = frozenset(t for t in program.tensors if t.role in HELD and t not in share and t not in persistent)
    plan = complete(program, costs, Plan(algorithm=algorithm, share=share, hold=hold))
    maps = [
        b for b in group(program, plan, residencies_of(program, plan)) if b.residencies[0].tensor.role is Role.GRADIENT
    ]
    share |= gradient_slots(maps)
    space = max((a.workspace for a in algorithm.values()), default=0)
    share |= {op: Slot("workspace", space) for op, a in algorithm.items() if a.workspace}
    return Plan(algorithm=algorithm, share=share, hold=hold)


def gradient_slots(maps: list[Buffer]) -> Share:
    """{gradient map: a slot that is free for its whole life}, with as few slots as maps are alive at once."""
    largest = max((b.nbytes for b in maps), default=0)
    free_from: list[int] = []  # for each slot the point from which it is free
    slots: Share = {}
    for b in sorted(maps, key=lambda b: b.lo):
        k = next((k for k, p in enumerate(free_from) if p <= b.lo), len(free_from))
        if k == len(free_from):
            free_from.append(0)
        free_from[k] = b.hi
        slots[b.residencies[0].tensor] = Slot(f"gradient map {k}", largest)
    return slots
