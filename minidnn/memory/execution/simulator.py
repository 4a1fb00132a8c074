"""The simulator: streams that go on together from one end of an instruction to the next. It runs a schedule against a
cost table, without kernels."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from minidnn.costs import MOST_DRAG, Costs
from minidnn.memory.execution.trace import Span, Trace, awaited, memory_curve, name_of
from minidnn.memory.schedule import (
    STREAMS,
    Alloc,
    Compute,
    Fetch,
    Free,
    Instruction,
    Listing,
    Offload,
    Prefetch,
    Stash,
    Stream,
    Wait,
)

WAYS: tuple[Stream, ...] = ("out", "in")
CONCURRENT: tuple[Stream, ...] = (*WAYS, "net", "host")  # the streams whose work slows compute down


def simulate(schedule: Listing, costs: Costs) -> Trace:
    """The trace of one step on the device that `costs` describes.

    It depends on no place of bytes, so a listing will do. A stream runs its instructions one after another, in the
    order of the schedule. Copies and communications slow ops down as far as the costs say (Costs.dragged,
    Costs.net_drag, Costs.host_drag), and copies in both directions each other (Costs.duplex). Nothing else slows
    anything down.
    """
    run = _Run(schedule, costs)
    run.begin()
    while run.working:
        run.go_on()
        run.begin()
    spans = tuple(sorted(run.spans, key=lambda span: span.index))
    waits = tuple(sorted(run.waits, key=lambda span: span.index))
    memory = memory_curve(schedule, run.moments)
    return Trace(spans, run.now, run.stall, memory, waits, tuple(run.moments))


@dataclass
class _Work:
    """What a stream does: at the moment `since`, `left` seconds of it were left, and it goes on at `rate`.

    drags: of an op, what a second of each of CONCURRENT takes from it; () if they take nothing
    end:   if the rate stays"""

    index: int
    name: str
    start: float
    since: float
    left: float
    drags: tuple[float, ...]
    rate: float
    end: float

    def pace(self, now: float, rate: float) -> None:
        if rate != self.rate:
            self.left = max(self.left - (now - self.since) * self.rate, 0.0)
            self.since, self.rate = now, rate
            self.end = now + self.left / rate


class _Run:
    """A step under way: all streams are at the moment `now`."""

    def __init__(self, schedule: Listing, costs: Costs) -> None:
        self.schedule, self.costs = schedule, costs
        self.now = 0.0
        self.finished: set[int] = set()
        self.spans: list[Span] = []
        self.waits: list[Span] = []
        self.moments: list[tuple[int, float]] = []
        self.stall = 0.0
        self.working: dict[Stream, _Work] = {}
        queues: dict[Stream, deque[tuple[int, Instruction]]] = {stream: deque() for stream in STREAMS}
        for i, x in enumerate(schedule.instructions):
            queues["compute" if isinstance(x, (Alloc, Free)) else x.stream].append((i, x))
        self.queues = {stream: queue for stream, queue in queues.items() if queue}
        self.idle = dict.fromkeys(self.queues, 0.0)  # since when

    def begin(self) -> None:
        """Let each stream that is idle begin what waits for nothing that is not finished."""
        for stream, queue in self.queues.items():
            while queue and stream not in self.working:
                i, x = queue[0]
                if isinstance(x, Wait):
                    if x.on not in self.finished:
                        break
                    self._waited(i, x)
                elif isinstance(x, (Alloc, Free)):
                    self.moments.append((i, self.now))
                else:
                    seconds = _seconds(x, self.schedule, self.costs)
                    drags = _drags(x, self.costs) if isinstance(x, Compute) and stream == "compute" else ()
                    self.working[stream] = _Work(
                        i, name_of(x), self.now, self.now, seconds, drags, 1.0, self.now + seconds
                    )
                queue.popleft()

    def _waited(self, i: int, x: Wait) -> None:
        start = self.idle[x.stream]
        if self.now > start:
            self.waits.append(Span(i, x.stream, awaited(self.schedule, x), start, self.now))
            self.stall += self.now - start if x.stream == "compute" else 0.0
            self.idle[x.stream] = self.now

    def go_on(self) -> None:
        """Go on to the next moment at which an instruction ends."""
        self._pace()
        self.now = min(work.end for work in self.working.values())
        for stream in [stream for stream, work in self.working.items() if work.end <= self.now]:
            work = self.working.pop(stream)
            self.finished.add(work.index)
            self.spans.append(Span(work.index, stream, work.name, work.start, self.now))
            self.idle[stream] = self.now

    def _pace(self) -> None:
        """Give each stream the rate that it has beside the others."""
        for stream, other, rate in zip(WAYS, reversed(WAYS), self.costs.duplex, strict=True):
            if stream in self.working:
                self.working[stream].pace(self.now, rate if other in self.working else 1.0)
        if (op := self.working.get("compute")) is not None and op.drags:
            rate = 1.0
            for stream, drag in zip(CONCURRENT, op.drags, strict=True):
                if stream in self.working:
                    rate -= drag * self.working[stream].rate
            op.pace(self.now, max(rate, 1 - MOST_DRAG))


def _drags(x: Compute, costs: Costs) -> tuple[float, ...]:
    """What a second of each of CONCURRENT takes from the work of an op; () if they take nothing."""
    drags = *costs.dragged(x.op, costs.choice(x.op, x.algorithm)), costs.net_drag, costs.host_drag
    return drags if any(drags) else ()


def _seconds(x: Compute | Offload | Prefetch | Stash | Fetch, schedule: Listing, costs: Costs) -> float:
    if isinstance(x, Compute):
        return costs.host_seconds(x.op) if x.stream == "host" else costs.seconds(x.op, x.algorithm)
    if isinstance(x, (Stash, Fetch)):
        assert schedule.staging is not None
        seconds = schedule.staging.stash_seconds if isinstance(x, Stash) else schedule.staging.fetch_seconds
        return seconds(x.staging_slot.tensor.nbytes, x.staging_slot.tensor in schedule.disk_offset)
    if (place := schedule.on_peer.get(x.residency.tensor)) is not None:
        return place.peer.latency + x.residency.tensor.nbytes / place.peer.bandwidth
    bandwidth = costs.bandwidth_out if isinstance(x, Offload) else costs.bandwidth_in
    return costs.latency + x.residency.tensor.nbytes / bandwidth
