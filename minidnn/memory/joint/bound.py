"""A lower bound of a step's seconds within a budget, for all plans of a plan space, by a linear program.

The plan space. The device runs all ops: Plan.host_ops is empty. Their first executions stand in the program's order.
Any op of forward that updates nothing in place may run again: anywhere, as often as wanted, with the op's one
algorithm. All other ops run once. Every tensor that is not persistent may leave for the host and come back: anywhere,
as often as wanted. A persistent one lives on the device for the whole step, or on the host, where a copy takes its new
value. Each op has any of its algorithms. Bytes are shared only where `Op.inplace` permits it. Every policy of this
package makes plans of this plan space, but zero_offload. The program of NAME@N is another, with a bound of its own.

The claim. Take any plan of the plan space whose live bytes keep the budget, and whose host bytes keep the host's
(Costs.host). Its seconds in the simulator (memory/execution/simulator.py) are at least the bound. Placement only adds
bytes, so this holds for arenas within the budget, too.

The program. Ops are grouped into windows of elapsed time; `D[w]` is the time from the start of a window's first op to
the start of the next window's. Their sum is minimised. In a plan exactly one of three holds for each gap between two
uses of a tensor. The tensor stays (k), it is recomputed (r), or it is copied back (c). Each row below holds for every
plan, with the plan's own values for the variables:

    k + c + r >= 1                         for each gap, since the op behind it uses the tensor
    D[w] >= seconds of its ops             with algorithms between the leanest and the fastest; less what copies drag
    sum of D >= sum of seconds + reruns    up to each window; a run counts at the last point that can want it
    runs of an op >= sum of r              over the gaps of one of its results: they lie apart in time
    held + copied + run again >= r         for each tensor that the run needs behind its uses (chains.py)
    no algorithm                           whose workspace does not fit beside its op's operands
    A[w] - A[w-1] <= bandwidth * D[w]      bytes copied out; at most those that were written by then
    P[w] - P[w-1] <= bandwidth * D[w]      bytes copied in; at least those of gaps that have ended
    seconds of both <= share * D[w]        of copies alone; share: the parts of their rates that both keep while both
                                           directions are busy (Costs.duplex), together, and at least 1
    A[w] >= bytes that have come back      a copy has gone out before it comes back
    live bytes at an op <= budget          those that it uses, stay, wait for their copy out, or came back early
    k >= h                                 for each gap of a persistent tensor; h: whether it lives on the device. If
    not,
                                           it comes before its first use, and its new value is copied out
    bytes on the host <= its budget        those of tensors with c, and of persistent ones without h. Not with a ring,
                                           whose bytes are taken in turns

Among several ranks communications run beside ops, and take no time in the program. `Index.least` is what a step takes
at least because ops wait for them. The larger of both is the bound.

Variables belong to gaps, not to pairs of an op and a tensor, so the program grows with the number of ops. Every
simplification makes the bound lower, never higher. Tensors may be there in part. Latencies cost nothing. Small tensors
take no bytes between their uses. What a rerun reads takes none if an op reads it later, and what it writes takes none.
Only the worst ops of each window have a row for their live bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minidnn.memory.joint.index import LONG, Gap, Index
from minidnn.memory.joint.linear import MB, MS, Solver, Unsolved
from minidnn.memory.joint.rows import BoundRows
from minidnn.program import Tensor

WINDOWS = 200
WHOLE = 600  # decisions of a program whose bound may be an integer program's: VGG-19 in 4 parts has 526, ResNet-50 619
NODES = 100  # of its search, at most
EXACT = 1e-3  # part by which it may miss its own optimum
ROUNDING = 1e-9  # part by which sums of bytes may be wrong
WORST = 2  # ops of each window with a row for their live bytes


@dataclass(frozen=True)
class Bound:
    """No plan of the plan space within the budget takes fewer seconds.

    price: seconds that one byte more saves, as far as the bound knows
    """

    seconds: float
    price: float


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The bound's own answer, which is no plan, since parts of tensors stay and leave. It tells what pays.

    keep, offload, recompute: {gap: the part of the tensor that has this fate there}
    faster: for each op, the parts of its run that its algorithms take, without the leanest
    behind: {tensor that a run again needs behind its uses: the parts (held, copied back)}; the rest runs again
    on_device: {persistent tensor: the part of it that lives on the device}
    """

    bound: Bound
    keep: Mapping[Gap, float]
    offload: Mapping[Gap, float]
    recompute: Mapping[Gap, float]
    faster: Sequence[Sequence[float]]
    behind: Mapping[Tensor, tuple[float, float]]
    on_device: Mapping[Tensor, float]


class LowerBound:
    """The bounds of one program on one device, for as many budgets as are asked for; each asks from the last answer."""

    def __init__(self, index: Index, windows: int = WINDOWS, worst: int = WORST, may_host: bool = True) -> None:
        """`may_host`: whether persistent tensors may live on the host, too; False: those that do are the program's."""
        free = index.program.movable if may_host and index.copies else frozenset[Tensor]()
        if free:
            index = Index(index.program.with_host_resident(free), index.given, index.small, index.copies, free)
        if len(index.ops) > LONG:
            free = frozenset(index.program.host_resident)
        self._rows = BoundRows(index, windows, worst, free)
        self._solver: Solver | None = None

    def at(self, budget: int) -> Bound | None:
        """The bound for `budget` bytes; None: no plan of the plan space keeps it."""
        result = self.relaxed(budget)
        return None if result is None else result.bound

    def relaxed(self, budget: int) -> Relaxed | None:
        """The bound for `budget` bytes with its answer; None: no plan of the plan space keeps it."""
        self._solver = self._solver or Solver(self._rows)
        self._limit(self._solver, budget / MB)
        result = self._solver.least()
        if result is None:
            return None
        price = max(0.0, -float(sum(result.duals[row] for row, _ in self._rows.memory)))
        value = result.value.tolist()
        keep, offload, recompute = (
            {g: value[v] for g, v in kind.items()}
            for kind in (self._rows.keep, self._rows.offload, self._rows.recompute)
        )
        faster = [[value[v] for v in several] for several in self._rows.faster]
        least = self._rows.index.least()
        seconds = result.bound * MS
        bound = Bound(seconds, price * MS / MB) if seconds >= least else Bound(least, 0.0)
        on_device = {t: value[v] for t, v in self._rows.on_device.items()}
        return Relaxed(bound, keep, offload, recompute, faster, self._rows.behind.parts(value), on_device)

    def closest(self, budget: int) -> Bound | None:
        """`at`, or for short programs the closer one of `at_whole`."""
        result = self.at(budget)
        if result is None or len(self._rows.whole) > WHOLE:
            return result
        try:
            whole = self.at_whole(budget, NODES, EXACT)
        except Unsolved:  # within these nodes
            return result
        return None if whole is None else Bound(max(result.seconds, whole.seconds), result.price)

    def at_whole(self, budget: int, nodes: int, gap: float) -> Bound | None:
        """Like `at`, with tensors that are there as a whole or not at all: slower and closer."""
        solver = Solver(self._rows)
        self._limit(solver, budget / MB)
        result = solver.bound_whole(nodes, gap)
        return None if result is None else Bound(result * MS, 0.0)

    def least(self) -> int:
        """Bytes: no plan of the plan space keeps a budget below this."""
        least = int(self._rows.least * MB)
        if self._rows.index.copies and self._rows.index.host_room is None:  # what no op uses now can be away
            return least
        solver = Solver(self._rows)
        solver.only(self._rows.over, self._rows.most)
        self._limit(solver, 0.0)
        result = solver.least()
        assert result is not None, "without a limit of bytes every program has a plan"
        return max(least, int(result.bound * MB))

    def _limit(self, solver: Solver, megabytes: float) -> None:
        """Limit the live bytes. An algorithm that does not fit beside its op's operands is no choice, not in part."""
        rows = self._rows
        for row, base in rows.memory:
            solver.limit(row, megabytes - base)
        for needs, several, choices in zip(rows.needs.tolist(), rows.faster, rows.index.choices, strict=True):
            for v, c in zip(several, choices[1:], strict=True):
                solver.cap(v, float(needs + c.algorithm.workspace / MB <= megabytes * (1 + ROUNDING)))
