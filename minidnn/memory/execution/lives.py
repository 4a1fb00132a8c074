"""When bytes were taken, in seconds of a trace: those of the arena by each residency, and those of the host.

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
    Offload,
    Prefetch,
    Residency,
    Schedule,
    StagingSlot,
    Stash,
    stored_bound,
)
from minidnn.program import Tensor

Curve = tuple[tuple[float, int], ...]  # (seconds, bytes from then on)


@dataclass(frozen=True)
class Life:
    """A residency on the device: `nbytes` at `offset` of the arena, from `start` to `end`.

    Both are seconds since the step began."""

    tensor: Tensor
    offset: int
    nbytes: int
    start: float
    end: float


def busy_spans(schedule: Schedule, trace: Trace) -> dict[Buffer, tuple[float, float]]:
    """{buffer: the seconds between which its bytes are taken}. Persistent buffers are taken for the whole step.

    Others are taken from their Alloc, or from their first access if that is a copy back which began earlier, to their
    Free. Where copies back begin as soon as possible, bytes are free after the last access, since such a copy waits for
    no more."""
    first, last = _accesses(schedule, trace)
    result = {b: (0.0, trace.seconds) for b in schedule.buffers if b.persistent}
    for i, at in trace.moments:
        x = schedule.instructions[i]
        if isinstance(x, Alloc):
            result[x.buffer] = min(at, first.get(x.buffer, at)), trace.seconds
        elif isinstance(x, Free):
            result[x.buffer] = result[x.buffer][0], last[x.buffer] if schedule.plan.asap else at
    return result


def lives(schedule: Schedule, trace: Trace) -> list[Life]:
    """A Life for each residency, in order of start.

    In a simulated step no two of them have a byte at the same time. In a measured one they may seem to, for some
    microseconds: a thread notes that an op has ended after another one has seen it.

    A residency that has a buffer alone lives as long as its bytes are taken. In a slot, and where several residencies
    share a buffer, a residency begins with its copy back or its first write. It ends with its last access or its copy
    out, and before the next one begins."""
    spans = {span.index: span for span in trace.spans}
    comes: dict[Residency, float] = {}
    leaves: dict[Residency, float] = {}
    for span in trace.spans:
        x = schedule.instructions[span.index]
        if isinstance(x, Prefetch):
            comes[x.residency] = span.start
        elif isinstance(x, Offload):
            leaves[x.residency] = span.end

    def start(s: Residency) -> float:
        return comes[s] if s in comes else spans[schedule.points[s.lo]].start

    def end(s: Residency) -> float:
        return max(spans[schedule.points[s.hi - 1]].end, leaves.get(s, 0.0))

    result: list[Life] = []
    for b, (first, last) in busy_spans(schedule, trace).items():
        if not shared(b):
            result.append(Life(b.residencies[0].tensor, schedule.offset[b], b.nbytes, first, last))
            continue
        residencies = sorted(b.residencies, key=start)
        until = [*(start(s) for s in residencies[1:]), last]
        result += [
            Life(s.tensor, schedule.offset[b], s.tensor.nbytes, max(first, start(s)), min(end(s), limit))
            for s, limit in zip(residencies, until, strict=True)
        ]
    return sorted(result, key=lambda life: (life.start, life.offset))


def shared(b: Buffer) -> bool:
    """Whether a buffer is a slot, or holds several residencies one after another: then it may be taken and empty."""
    return bool(b.name) or len(b.residencies) > 1


def _accesses(schedule: Schedule, trace: Trace) -> tuple[dict[Buffer, float], dict[Buffer, float]]:
    """The start of the first and the end of the last access of each buffer."""
    first: dict[Buffer, float] = {}
    last: dict[Buffer, float] = {}
    for span in trace.spans:
        x = schedule.instructions[span.index]
        residencies: tuple[Residency, ...] = ()
        if isinstance(x, Compute):
            residencies = (*x.reads, *x.writes, *([] if x.workspace is None else [x.workspace]))
        elif isinstance(x, (Prefetch, Offload)):
            residencies = (x.residency,)
        for s in residencies:
            first[s.buffer] = min(span.start, first.get(s.buffer, span.start))
            last[s.buffer] = max(span.end, last.get(s.buffer, span.end))
    return first, last


def host_curves(schedule: Schedule, trace: Trace) -> dict[str, Curve]:
    """{"pinned": bytes of pinned memory in use, "store": bytes of ordinary memory, "disk": bytes of a disk}; the second
    only with a ring, the third only with a disk in use.

    A tensor's place is in use from its first copy to its last; an op that the host runs counts as a copy. If the step
    begins with its value there, the place is in use from then on, and if its value stays there, until the step ends. A
    staging slot of the ring is in use from its first access to its last. Packed bytes depend on data: in the store they
    count as if nothing had been won."""
    lasting = {*schedule.program.inputs, *schedule.program.host_resident}
    places: dict[Tensor, list[Span]] = {}
    slots: dict[StagingSlot, list[Span]] = {}
    stored: dict[Tensor, list[Span]] = {}
    for span in trace.spans:
        x = schedule.instructions[span.index]
        if isinstance(x, (Stash, Fetch)):
            slots.setdefault(x.staging_slot, []).append(span)
            stored.setdefault(x.staging_slot.tensor, []).append(span)
        elif isinstance(x, (Offload, Prefetch)):
            if x.staging_slot is None:
                places.setdefault(x.residency.tensor, []).append(span)
            else:
                slots.setdefault(x.staging_slot, []).append(span)
        elif isinstance(x, Compute) and x.stream == "host":
            for t in x.op.tensors:
                places.setdefault(t, []).append(span)

    def held(t: Tensor, spans: list[Span], nbytes: int) -> tuple[float, float, int]:
        first, last = (schedule.instructions[span.index] for span in (spans[0], spans[-1]))
        comes = isinstance(first, (Prefetch, Fetch)) or (isinstance(first, Compute) and t in lasting)
        residencies = isinstance(last, (Offload, Stash)) or (isinstance(last, Compute) and t in lasting)
        return 0.0 if comes else spans[0].start, math.inf if residencies else spans[-1].end, nbytes

    pinned = [held(t, result, t.nbytes) for t, result in places.items()]
    pinned += [(min(s.start for s in f), max(s.end for s in f), slot.tensor.nbytes) for slot, f in slots.items()]
    curves = {"pinned": _curve(pinned)}
    if schedule.staging is not None:
        compress, on_disk = schedule.staging.compress, schedule.disk_offset
        memory = {t: result for t, result in stored.items() if t not in on_disk}
        curves["store"] = _curve(held(t, result, stored_bound(t, compress)) for t, result in memory.items())
        if on_disk:
            curves["disk"] = _curve(held(t, result, t.nbytes) for t, result in stored.items() if t in on_disk)
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
