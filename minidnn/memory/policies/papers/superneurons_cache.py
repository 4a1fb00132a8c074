"""SuperNeurons' tensor cache (Wang et al., PPoPP 2018, section 3.3.2, Algorithm 2), computed from the order of a step.

The paper's runtime finds out while it trains which tensors to move. But each step is the same, so this can be computed
before.

The device's memory is a cache of the host's. An execution locks the tensors that it touches, and brings back those that
are away. To make room for these and for the tensors that the execution writes, the least recently used others leave
until all fits. While there is room, nothing moves.

A tensor that leaves is copied out, unless the host has its value already. There are two ways:

  on demand       The copy begins where others need the bytes, and they wait for it, as in the paper. Nothing tells the
                  runtime beforehand that the tensor will leave.
  with foresight  The copy begins as soon as the tensor has its value, since its bytes will be needed: minidnn's own.
                  A tensor whose copy takes less time than the link's latency stays.

A tensor that comes back is copied beside the layers from the convolution before on (3.3.1), if there is room for it
that long. If not, its copy begins later, at the latest where the tensor is used. Tensors that live across steps stay.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from minidnn.costs import Costs
from minidnn.memory.lowering.lower import group, residencies_of
from minidnn.memory.plan import OffloadInterval, Plan, Point, complete
from minidnn.memory.policies.shared.layers import is_product_on_maps
from minidnn.memory.schedule import Buffer, Residency, aligned, workspace_of
from minidnn.program import Op, Program, Role, Tensor


@dataclass(eq=False)
class _Line:
    """A buffer as the cache sees it: the points where it is used, and by which tensor."""

    buffer: Buffer
    size: int
    points: list[Point] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)  # the tensor that is read at each, or if none is, written
    written: list[bool] = field(default_factory=list)  # whether each use writes the buffer
    next: int = 0  # index of the next use
    given: bool = False  # its first value comes from the host
    clean: bool = False  # the host has its present value
    gone: Point | None = None  # the point since which it is away; None: it is on the device
    out: Point | None = None  # the point where its copy out may begin; None: it needs none


@dataclass(eq=False)
class Cached:
    """The result of a cache.

    offloads: the tensors' moves
    live:     bytes on the device at each execution, int64, as placement counts them; where they exceed the cap, all
              idle tensors are away
    """

    offloads: tuple[OffloadInterval, ...]
    live: np.ndarray

    @property
    def peak(self) -> int:
        """The most bytes on the device at any execution."""
        return int(self.live.max(initial=0))


class TensorCache:
    """The uses of every buffer in a plan. From these, `keep` computes a cache of any size."""

    def __init__(self, program: Program, costs: Costs, plan: Plan, on_demand: bool = False) -> None:
        """`plan` gives the order, algorithms and sharing.

        The cache decides the offload intervals, so those of `plan` are ignored.
        """
        plan = complete(program, costs, replace(plan, offloads=()))
        self.order, self.on_demand, inputs = plan.order, on_demand, set(program.inputs)
        least = 0.0 if on_demand else costs.latency * costs.bandwidth_out
        residencies = residencies_of(program, plan)
        buffers = group(program, plan, residencies)
        starts: dict[Point, list[Residency]] = defaultdict(list)
        for s in residencies:
            starts[s.lo].append(s)
        self.persistent_bytes = sum(aligned(b.nbytes) for b in buffers if b.persistent)
        self.lines: dict[Buffer, _Line] = {b: _Line(b, aligned(b.nbytes)) for b in buffers if not b.persistent}
        self.movable = {
            b for b in self.lines
            if b.nbytes > least and not b.name and b.residencies[0].tensor.role is not Role.WORKSPACE
            and b.residencies[0].tensor not in program.host_resident
        }  # fmt: skip
        self.begin: dict[Point, list[_Line]] = defaultdict(list)
        self.end: dict[Point, list[_Line]] = defaultdict(list)
        self.at: list[list[_Line]] = []
        for b, line in self.lines.items():
            self.begin[b.lo].append(line)
            self.end[b.hi].append(line)
            line.given = b.residencies[0].tensor in inputs
        now: dict[Tensor, Residency] = {}
        for p, op in enumerate(self.order):
            for s in starts.get(p, ()):
                now[s.tensor] = s
            a = plan.algorithm[op]
            uses = [(t, False) for t in op.reads] + [(t, True) for t in op.writes]
            if a.workspace:
                uses.append((workspace_of(op, a), True))
            touched: dict[_Line, None] = {}
            for t, write in uses:
                if t.nbytes == 0:
                    continue
                line = self.lines.get(now[t].buffer)  # type: ignore[assignment]
                if line is None:
                    continue
                if line not in touched:
                    touched[line] = None
                    line.points.append(p)
                    line.tensors.append(t)
                    line.written.append(write)
                elif write:
                    line.written[-1] = True
            self.at.append(list(touched))
        self.starts = _convolutions(self.order)

    def keep(self, cap: int) -> Cached:
        """The moves under a cap of `cap` bytes. If even the leanest exceeds the cap, all idle tensors are away."""
        live = np.zeros(len(self.order), np.int64)
        offloads: list[tuple[_Line, OffloadInterval]] = []
        recent: OrderedDict[_Line, None] = OrderedDict()  # lines that could leave, least recently used first
        used = self.persistent_bytes
        for line in self.lines.values():
            line.next, line.gone, line.out, line.clean = 0, None, None, line.given
        for p, touched in enumerate(self.at):
            for line in self.end.get(p, ()):
                used -= line.size
                recent.pop(line, None)
            back = [line for line in touched if line.gone is not None]
            used += sum(line.size for line in (*back, *self.begin.get(p, ())))
            for line in touched:
                if line in recent:
                    recent.move_to_end(line)
            locked, going = set(touched), []
            for line in recent if used > cap else ():
                if used <= cap or line in locked:
                    break  # the lines in use are the last
                going.append(line)
                used -= line.size
            for line in going:
                del recent[line]
                line.gone = p
                if self.on_demand and line.out is not None:
                    line.out = p
            live[p] = used
            for line in back:
                late = self.on_demand and line.out is not None
                offload = OffloadInterval(line.tensors[line.next], line.out, line.gone, p, p, on_demand=late)
                offloads.append((line, offload))
                line.gone, line.out, line.clean = None, None, True
            for line in touched:
                if line.written[line.next]:
                    line.clean, line.out = False, p + 1
                elif line.clean:
                    line.out = None
                line.next += 1
                if line.next == len(line.points):
                    recent.pop(line, None)
                elif line.buffer in self.movable:
                    recent[line] = None
        return Cached(self._early(offloads, live, cap), live)

    def _early(
        self, offloads: Sequence[tuple[_Line, OffloadInterval]], live: np.ndarray, cap: int
    ) -> tuple[OffloadInterval, ...]:
        """The same offload intervals, with each copy back moved as early as there is room, up to the convolution
        before.

        Adds their bytes to `live`.
        """
        result = []
        for line, offload in offloads:
            assert offload.free_at is not None and offload.prefetch_at is not None
            i = bisect_left(self.starts, offload.prefetch_at)
            first = max(self.starts[i - 1] if i else 0, offload.free_at + 1)
            full = np.flatnonzero(live[first : offload.prefetch_at] + line.size > cap)
            back = first + int(full[-1]) + 1 if len(full) else min(first, offload.prefetch_at)
            live[back : offload.prefetch_at] += line.size
            result.append(replace(offload, prefetch_at=back))
        return tuple(result)


def _convolutions(order: Sequence[Op]) -> list[Point]:
    """The points where a convolution layer's forward or backward begins, its re-runs included."""
    starts, seen = [], set()
    run = 0  # the point where the re-runs right before an op begin
    for p, op in enumerate(order):
        if op in seen:
            continue
        seen.add(op)
        if is_product_on_maps(op) and (p == 0 or order[p - 1].layer != op.layer or run < p):
            starts.append(run)
        run = p + 1
    return starts
