"""When bytes were taken, in seconds of a trace: those of the arena by each stay, and those of the host.

A schedule knows points, a trace knows moments. Here both meet, for pictures and for other programs' formats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from minidnn.memory.execution.trace import Span, Trace
from minidnn.memory.schedule import (
    Alloc,
    Buffer,
    Compute,
    Fetch,
    Free,
    Leg,
    Offload,
    Prefetch,
    Schedule,
    Stash,
    Stay,
    stored_bound,
)
from minidnn.program import Tensor

Curve = tuple[tuple[float, int], ...]  # (seconds, bytes from then on)


@dataclass(frozen=True)
class Life:
    """A stay on the device: `nbytes` at `offset` of the arena, from `start` to `end`.

    Both are seconds since the step began."""

    tensor: Tensor
    offset: int
    nbytes: int
    start: float
    end: float


def taken(schedule: Schedule, trace: Trace) -> dict[Buffer, tuple[float, float]]:
    """{buffer: the seconds between which its bytes are taken}. Homes are taken for the whole step.

    Others are taken from their Alloc, or from their first access if that is a copy back which began earlier, to their
    Free. Where copies back are eager, bytes are free after the last access, since such a copy waits for no more."""
    first, last = _accesses(schedule, trace)
    found = {b: (0.0, trace.seconds) for b in schedule.buffers if b.home}
    for i, at in trace.moments:
        x = schedule.instructions[i]
        if isinstance(x, Alloc):
            found[x.buffer] = min(at, first.get(x.buffer, at)), trace.seconds
        elif isinstance(x, Free):
            found[x.buffer] = found[x.buffer][0], last[x.buffer] if schedule.plan.eager else at
    return found


def lives(schedule: Schedule, trace: Trace) -> list[Life]:
    """A Life for each stay, in order of start.

    In a simulated step no two of them have a byte at the same time. In a measured one they may seem to, for some
    microseconds: a thread notes that an op has ended after another one has seen it.

    A stay that has a buffer alone lives as long as its bytes are taken. In a slot, and where several stays share a
    buffer, a stay begins with its copy back or its first write. It ends with its last access or its copy out, and
    before the next one begins."""
    spans = {span.index: span for span in trace.spans}
    comes: dict[Stay, float] = {}
    leaves: dict[Stay, float] = {}
    for span in trace.spans:
        x = schedule.instructions[span.index]
        if isinstance(x, Prefetch):
            comes[x.stay] = span.start
        elif isinstance(x, Offload):
            leaves[x.stay] = span.end

    def start(s: Stay) -> float:
        return comes[s] if s in comes else spans[schedule.points[s.lo]].start

    def end(s: Stay) -> float:
        return max(spans[schedule.points[s.hi - 1]].end, leaves.get(s, 0.0))

    found: list[Life] = []
    for b, (first, last) in taken(schedule, trace).items():
        if not shared(b):
            found.append(Life(b.stays[0].tensor, schedule.offset[b], b.nbytes, first, last))
            continue
        stays = sorted(b.stays, key=start)
        until = [*(start(s) for s in stays[1:]), last]
        found += [
            Life(s.tensor, schedule.offset[b], s.tensor.nbytes, max(first, start(s)), min(end(s), limit))
            for s, limit in zip(stays, until, strict=True)
        ]
    return sorted(found, key=lambda life: (life.start, life.offset))


def shared(b: Buffer) -> bool:
    """Whether a buffer is a slot, or holds several stays one after another: then it may be taken and empty."""
    return bool(b.name) or len(b.stays) > 1


def _accesses(schedule: Schedule, trace: Trace) -> tuple[dict[Buffer, float], dict[Buffer, float]]:
    """The start of the first and the end of the last access of each buffer."""
    first: dict[Buffer, float] = {}
    last: dict[Buffer, float] = {}
    for span in trace.spans:
        x = schedule.instructions[span.index]
        stays: tuple[Stay, ...] = ()
        if isinstance(x, Compute):
            stays = (*x.reads, *x.writes, *([] if x.workspace is None else [x.workspace]))
        elif isinstance(x, (Prefetch, Offload)):
            stays = (x.stay,)
        for s in stays:
            first[s.buffer] = min(span.start, first.get(s.buffer, span.start))
            last[s.buffer] = max(span.end, last.get(s.buffer, span.end))
    return first, last


def host_curves(schedule: Schedule, trace: Trace) -> dict[str, Curve]:
    """{"pinned": bytes of pinned memory in use, "store": bytes of ordinary memory, "disk": bytes of a disk}; the second
    only with a ring, the third only with a disk in use.

    A tensor's place is in use from its first copy to its last; an op that the host runs counts as a copy. If the step
    begins with its value there, the place is in use from then on, and if its value stays there, until the step ends. A
    leg of the ring is in use from its first access to its last. Packed bytes depend on data: in the store they count as
    if nothing had been won."""
    lasting = {*schedule.program.inputs, *schedule.program.hosted}
    places: dict[Tensor, list[Span]] = {}
    legs: dict[Leg, list[Span]] = {}
    stored: dict[Tensor, list[Span]] = {}
    for span in trace.spans:
        x = schedule.instructions[span.index]
        if isinstance(x, (Stash, Fetch)):
            legs.setdefault(x.leg, []).append(span)
            stored.setdefault(x.leg.tensor, []).append(span)
        elif isinstance(x, (Offload, Prefetch)):
            if x.leg is None:
                places.setdefault(x.stay.tensor, []).append(span)
            else:
                legs.setdefault(x.leg, []).append(span)
        elif isinstance(x, Compute) and x.stream == "host":
            for t in x.op.tensors:
                places.setdefault(t, []).append(span)

    def held(t: Tensor, found: list[Span], nbytes: int) -> tuple[float, float, int]:
        first, last = (schedule.instructions[span.index] for span in (found[0], found[-1]))
        comes = isinstance(first, (Prefetch, Fetch)) or (isinstance(first, Compute) and t in lasting)
        stays = isinstance(last, (Offload, Stash)) or (isinstance(last, Compute) and t in lasting)
        return 0.0 if comes else found[0].start, math.inf if stays else found[-1].end, nbytes

    pinned = [held(t, found, t.nbytes) for t, found in places.items()]
    pinned += [(min(s.start for s in f), max(s.end for s in f), leg.tensor.nbytes) for leg, f in legs.items()]
    curves = {"pinned": _curve(pinned)}
    if schedule.staging is not None:
        compress, on_disk = schedule.staging.compress, schedule.disk_offset
        memory = {t: found for t, found in stored.items() if t not in on_disk}
        curves["store"] = _curve(held(t, found, stored_bound(t, compress)) for t, found in memory.items())
        if on_disk:
            curves["disk"] = _curve(held(t, found, t.nbytes) for t, found in stored.items() if t in on_disk)
    return curves


def _curve(intervals: Iterable[tuple[float, float, int]]) -> Curve:
    """The sum of the bytes of these (start, end, bytes), with a point for each time at which it changes.

    An infinite end is after the step."""
    changes: dict[float, int] = {0.0: 0}
    for start, end, nbytes in intervals:
        changes[start] = changes.get(start, 0) + nbytes
        changes[end] = changes.get(end, 0) - nbytes
    times = sorted(t for t in changes if t < math.inf)
    return tuple(zip(times, accumulate(changes[t] for t in times), strict=True))
