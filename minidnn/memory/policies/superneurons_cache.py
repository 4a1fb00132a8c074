"""SuperNeurons' tensor cache (Wang et al., PPoPP 2018, section 3.3.2, Algorithm 2), as a computation on the order of a
step: what the paper's runtime finds out while it trains is known before, since each step is the same.

The device's bytes are a cache of the host's. An execution locks what it touches and looks for it: what is not there
comes back, and for that and for what it writes first the least recently used of the rest go, until there is room. While
there is room nothing moves. What goes is copied out as soon as it has its value, if the host has not got it already, so
that its bytes are free when they are wanted. What comes back does so beside the layers from the convolution before on,
as far as there is room for it that long (3.3.1); at the latest where it is used.

What lives across steps stays, and so does what is so small that its copy would hardly begin.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from minidnn.costs import Costs
from minidnn.memory.lowering.lower import group, residencies
from minidnn.memory.plan import Plan, Point, Trip, complete
from minidnn.memory.schedule import Buffer, Stay, aligned, workspace_of
from minidnn.program import Op, Program, Role, Tensor


@dataclass(eq=False)
class _Line:
    """A buffer as the cache sees it: when it is used, and by which tensor."""

    buffer: Buffer
    size: int
    points: list[Point] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)  # what is read at each, or, if nothing is, written
    written: list[bool] = field(default_factory=list)
    next: int = 0  # the use to come
    given: bool = False  # it begins with what the host gave
    clean: bool = False  # the host has its value
    gone: Point | None = None  # since when it is away
    out: Point | None = None  # where its copy out may begin; None: it needs none


@dataclass(eq=False)
class Cached:
    """trips: what the cache moves. live: bytes on the device at each execution, int64, as placement counts them;
    where they exceed the cap, all is away that is not in use."""

    trips: tuple[Trip, ...]
    live: np.ndarray

    @property
    def peak(self) -> int:
        return int(self.live.max(initial=0))


class TensorCache:
    """The uses of everything in a plan, from which a cache of any size can be worked out."""

    def __init__(self, program: Program, costs: Costs, plan: Plan) -> None:
        """`plan` says order, algorithms and sharing; what it moves is left to the cache."""
        plan = complete(program, costs, replace(plan, trips=()))
        self.order, inputs = plan.order, set(program.inputs)
        least = costs.latency * costs.bandwidth_out
        stays = residencies(program, plan)
        buffers = group(program, plan, stays)
        starts: dict[Point, list[Stay]] = defaultdict(list)
        for s in stays:
            starts[s.lo].append(s)
        self.home = sum(aligned(b.nbytes) for b in buffers if b.home)
        self.lines: dict[Buffer, _Line] = {b: _Line(b, aligned(b.nbytes)) for b in buffers if not b.home}
        self.movable = {
            b for b in self.lines
            if b.nbytes > least and not b.name and b.stays[0].tensor.role is not Role.WORKSPACE
        }  # fmt: skip
        self.begin: dict[Point, list[_Line]] = defaultdict(list)
        self.end: dict[Point, list[_Line]] = defaultdict(list)
        self.at: list[list[_Line]] = []
        for b, line in self.lines.items():
            self.begin[b.lo].append(line)
            self.end[b.hi].append(line)
            line.given = b.stays[0].tensor in inputs
        now: dict[Tensor, Stay] = {}
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
        """What moves under `cap` bytes. Where not even that keeps it, all that is idle is away."""
        live = np.zeros(len(self.order), np.int64)
        trips: list[tuple[_Line, Trip]] = []
        recent: OrderedDict[_Line, None] = OrderedDict()  # what could go, least recently used first
        used = self.home
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
                    break  # those in use are the last
                going.append(line)
                used -= line.size
            for line in going:
                del recent[line]
                line.gone = p
            live[p] = used
            for line in back:
                trips.append((line, Trip(line.tensors[line.next], line.out, line.gone, p, p)))
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
        return Cached(self._early(trips, live, cap), live)

    def _early(self, trips: Sequence[tuple[_Line, Trip]], live: np.ndarray, cap: int) -> tuple[Trip, ...]:
        """The same trips, begun back as early as there is room, not before the convolution before; notes their bytes
        in `live`."""
        found = []
        for line, trip in trips:
            assert trip.free is not None and trip.back is not None
            i = bisect_left(self.starts, trip.back)
            first = max(self.starts[i - 1] if i else 0, trip.free + 1)
            full = np.flatnonzero(live[first : trip.back] + line.size > cap)
            back = first + int(full[-1]) + 1 if len(full) else min(first, trip.back)
            live[back : trip.back] += line.size
            found.append(replace(trip, back=back))
        return tuple(found)


def _convolutions(order: Sequence[Op]) -> list[Point]:
    """Where each convolution layer's forward or backward begins, what runs again for it included."""
    starts, seen = [], set()
    run = 0  # where the re-runs that stand before an op begin
    for p, op in enumerate(order):
        if op in seen:
            continue
        seen.add(op)
        if op.family == "convolution" and (p == 0 or order[p - 1].layer != op.layer or run < p):
            starts.append(run)
        run = p + 1
    return starts
