"""DTR (Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen, Tatlock: "Dynamic Tensor Rematerialization", ICLR 2021).
DTR-style: its runtime is simulated beforehand.

The paper's runtime treats the device's memory as a cache of tensors, without a plan. Each step of a net is the same
here, so its decisions are simulated before (dtr_runtime.py), and the plan is the order that they make.
Nothing leaves the device.

We had the abstract, summaries, and the authors' simulator (simrd in github.com/uwsampl/dtr-prototype). Its logic is
Figure 1 of the paper: before an op runs, the evicted tensors that it reads are recomputed, and before them the evicted
tensors that they need. If a result does not fit, the evictable tensor with the lowest h leaves until it does. The
heuristic is that of the prototype, h_DTR^eq: the seconds of the tensor's op and of the evicted tensors around it,
divided by its bytes and by the time since its last use.

Deviations:

  * Only forward ops run again. The paper may evict gradients, too.
  * A tensor is evicted eagerly when the program's last use of it has passed (the paper's "eager eviction"). No tensor
    is banished.
  * The runtime holds a tensor until it evicts it. The plan knows the future: the tensor has no bytes after the last use
    before its next run. So the plan takes less than the runtime would.
  * An op that the kernel permits to write over a tensor does so, if the program is done with that tensor. PyTorch's
    prototype copies instead.
  * Inputs stay until the runtime ends, as the paper's constants do.
  * In a large pool, 256 tensors are considered for an eviction, chosen at random with one seed. The prototype considers
    as many as the root of their number.

The limit of the runtime begins at the budget. It falls by the bytes by which the placed plan exceeds the budget, and
rises by the bytes that the plan leaves. If no limit gives a plan that keeps the budget, the plan is the leanest: the
one with the lowest arena, among the limits that the runtime survives.
"""

from __future__ import annotations

from minidnn.costs import Costs
from minidnn.memory.plan import Plan
from minidnn.memory.policies.papers.dtr_runtime import Full, Runtime
from minidnn.memory.policies.shared import probe
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.policies.shared.orders import in_place
from minidnn.memory.policies.shared.search import Rooms
from minidnn.program import Program

ATTEMPTS = 8  # limits tried under a budget
HALVINGS = 7  # limits tried for the leanest plan
FINE = 64  # the search ends once the limits whose plans do and do not fit differ by 1/64 of the budget


def dtr(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """A cache whose evicted tensors are recomputed."""
    own = Plan(program.ops, algorithm=choose(program, costs, algorithms), share=in_place(program, program.ops))
    if probe.fits(program, costs, own, budget):
        return own
    runtime = Runtime(program, costs, own.algorithm)
    best, quickest = None, float("inf")
    limits = _Limits(budget, ATTEMPTS, budget // FINE, failing=2 * budget)
    for limit in limits:
        try:
            plan = _within(runtime, own, limit)
        except Full:
            break
        limits.over = probe.over(program, costs, plan, budget)
        if limits.over <= 0:
            seconds = probe.op_seconds(costs, plan)
            if seconds >= quickest:
                break  # more bytes need not mean fewer seconds
            best, quickest = plan, seconds
    return best or _leanest(runtime, own)


class _Limits(Rooms):
    def next(self, room: int) -> int:
        """Down by what is too much, and up by what is left, but no further than to the middle."""
        return min(room - self.over, self.middle) if self.fitting else room - max(self.over, self.near)


def _within(runtime: Runtime, own: Plan, limit: int) -> Plan:
    """The plan of a runtime with so many bytes. Raises Full."""
    order = tuple(runtime.order(limit))
    return Plan(order, algorithm=own.algorithm, share=in_place(runtime.program, order))


def _leanest(runtime: Runtime, own: Plan) -> Plan:
    """The plan with the lowest arena, of those of some limits."""
    program, costs = runtime.program, runtime.costs
    high = probe.arena(program, costs, own)
    best, least, low = own, high, 0
    for _ in range(HALVINGS):
        limit = (low + high) // 2
        try:
            plan = _within(runtime, own, limit)
        except Full:
            low = limit
            continue
        high = limit
        if (arena := probe.arena(program, costs, plan)) < least:
            best, least = plan, arena
    return best
