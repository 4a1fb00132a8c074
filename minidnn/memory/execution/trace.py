"""A trace of one step, measured or simulated: when each instruction ran, and the bytes live over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.memory.execution.runtime import Timed
from minidnn.memory.schedule import (
    Alloc,
    Compute,
    Fetch,
    Free,
    Instruction,
    Listing,
    Offload,
    Prefetch,
    Schedule,
    Stash,
    Stream,
    Wait,
)


@dataclass(frozen=True)
class Span:
    """One instruction's time on its stream, in seconds since the step began."""

    index: int  # position in schedule.instructions
    stream: Stream
    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Trace:
    """The times and the memory of one step.

    spans:   in order of issue
    memory:  (seconds, bytes live from then on), a step curve that starts at 0
    waits:   the Waits in which a stream stood still, in order of issue; each span has the name of the awaited
             instruction
    moments: (position in schedule.instructions, seconds) of each Alloc and Free, in order of issue
    """

    spans: tuple[Span, ...]
    seconds: float
    stall_seconds: float  # the time that compute waited for copies
    memory: tuple[tuple[float, int], ...]
    waits: tuple[Span, ...] = ()
    moments: tuple[tuple[int, float], ...] = ()

    def __repr__(self) -> str:
        return f"<trace of {len(self.spans)} instructions: {self.seconds:.3g} s, {self.stall_seconds:.3g} s stalled>"

    @property
    def average_bytes(self) -> int:
        """Live bytes averaged over the step's time."""
        if not self.seconds:
            return max((b for _, b in self.memory), default=0)
        ends = [*(t for t, _ in self.memory[1:]), self.seconds]
        return round(sum(b * (e - t) for (t, b), e in zip(self.memory, ends, strict=True)) / self.seconds)

    @property
    def copying(self) -> float:
        """Seconds of all copies between device and host."""
        return sum(span.end - span.start for span in self.spans if span.stream in ("out", "in"))

    @property
    def peak_bytes(self) -> int:
        """The most bytes live at any time."""
        return max((b for _, b in self.memory), default=0)


def awaited(schedule: Listing, x: Wait) -> str:
    """The name of the instruction that a Wait waits for."""
    on = schedule.instructions[x.on]
    assert isinstance(on, (Compute, Offload, Prefetch, Stash, Fetch))
    return name_of(on)


def name_of(x: Compute | Offload | Prefetch | Stash | Fetch) -> str:
    """The name of the instruction's op, with its run, or of its tensor."""
    if isinstance(x, Compute):
        return f"{x.op.name}#{x.run}" if x.run else x.op.name
    if isinstance(x, (Stash, Fetch)):
        return x.staging_slot.tensor.name
    return x.residency.tensor.name


def memory_curve(schedule: Listing, moments: Iterable[tuple[int, float]]) -> tuple[tuple[float, int], ...]:
    """(seconds, live bytes from then on), from the moments of Allocs and Frees. Persistent tensors are live from 0
    on."""
    live = sum(b.nbytes for b in schedule.buffers if b.persistent)
    curve: list[tuple[float, int]] = [(0.0, live)]
    for i, at in moments:
        x = schedule.instructions[i]
        if isinstance(x, (Alloc, Free)):
            live += x.buffer.nbytes if isinstance(x, Alloc) else -x.buffer.nbytes
            if at <= curve[-1][0]:
                # Of several values at the same time, the peak must stay visible; then only the last counts.
                if live > curve[-1][1] or len(curve) == 1:
                    curve[-1] = (curve[-1][0], live)
                else:
                    curve.append((curve[-1][0], live))
            else:
                curve.append((at, live))
    return tuple(curve)


def copied(instructions: Sequence[Instruction], schedule: Schedule) -> dict[str, int]:
    """Bytes that one step copies: offload_bytes, prefetch_bytes, and apart from them input_bytes, output_bytes."""
    inputs, outputs = set(schedule.program.inputs), set(schedule.program.outputs)
    moved = dict.fromkeys(("offload_bytes", "prefetch_bytes", "input_bytes", "output_bytes"), 0)
    for x in instructions:
        if isinstance(x, Offload):
            leaves = x.residency.leaves
            final = leaves is not None and leaves.prefetch_at is None and x.residency.tensor in outputs
            moved["output_bytes" if final else "offload_bytes"] += x.residency.tensor.nbytes
        elif isinstance(x, Prefetch):
            arrives = x.residency.arrives
            first = arrives is not None and arrives.free_at is None and x.residency.tensor in inputs
            moved["input_bytes" if first else "prefetch_bytes"] += x.residency.tensor.nbytes
    return moved


def traced(schedule: Schedule, raw: Sequence[Timed], seconds: float) -> Trace:
    """The trace of a timed run. Allocs and Frees get the time at which the op before them ended."""
    spans, waits, stall = [], [], 0.0
    finished: dict[int, float] = {}
    for i, stream, start, end in sorted(raw, key=lambda r: (r[0], r[2])):
        x = schedule.instructions[i]
        if isinstance(x, Wait):
            stall += end - start if stream == "compute" else 0.0
            if end > start:
                waits.append(Span(i, stream, awaited(schedule, x), start, end))
        elif isinstance(x, (Compute, Offload, Prefetch, Stash, Fetch)) and i not in finished:
            finished[i] = end
            spans.append(Span(i, stream, name_of(x), start, end))
    moments: list[tuple[int, float]] = []
    now = 0.0
    for i, x in enumerate(schedule.instructions):
        if isinstance(x, Compute) and x.stream == "compute":
            now = finished[i]
        elif isinstance(x, (Alloc, Free)):
            moments.append((i, now))
    memory = memory_curve(schedule, moments)
    return Trace(tuple(spans), seconds, stall, memory, tuple(waits), tuple(moments))
