"""A policy of your own: maps that backward reads only after many ops wait on the host."""

from minidnn.memory.plan import OffloadInterval, Plan
from minidnn.memory.policies import POLICIES, choose
from minidnn.program import FORWARD, Role

IDLE, AHEAD = 8, 2  # ops: how long a map must be idle to leave, and how early it comes back


def far(program, costs, budget, algorithms="m"):
    """Maps that are idle for a long time wait on the host."""
    last, first = {}, {}  # a map's last reader in forward, and its first reader in backward
    for p, op in enumerate(program.ops):
        for t in op.reads:
            if op.during in FORWARD:
                last[t] = p
            else:
                first.setdefault(t, p)
    idle = [t for t in last if t.role is Role.ACTIVATION and t in first and first[t] - last[t] >= IDLE]
    offloads = [
        OffloadInterval(t, offload_at=last[t], free_at=last[t] + 1, prefetch_at=first[t] - AHEAD, needed_at=first[t])
        for t in idle
    ]
    return Plan(algorithm=choose(program, costs, algorithms), offloads=tuple(offloads))


POLICIES["far"] = far
