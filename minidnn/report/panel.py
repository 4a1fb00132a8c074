"""A panel: the data for the picture of one policy's step, bytes over time and a bar for each instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from minidnn.memory.execution.trace import Trace
from minidnn.memory.schedule import Compute, Fetch, Offload, Prefetch, Schedule, Stash, Stream, Wait
from minidnn.program import PRODUCTS, Pass, Tensor, nbytes

# kinds of bars: CSS class -> its words in the legend, in the legend's order
KINDS = {
    "convolution": "convolution",
    "inner": "inner product",
    "other": "pooling, ReLU, norm, …",
    "update": "weight update",
    "again": "recomputed",
    "out": "copy out (offload)",
    "in": "copy in (prefetch)",
    "store": "between pinned and ordinary memory or a disk",
    "net": "between ranks",
    "host": "weight update by the host",
}
LANES = {
    "compute": "compute", "out": "out", "in": "in", "store": "store", "load": "load", "net": "net", "host": "host",
}  # fmt: skip
RARE = ("store", "load", "net", "host")  # lanes that are drawn only if they have a bar


@dataclass(frozen=True)
class Bar:
    """One instruction, drawn as a bar on the lane of its stream."""

    lane: str  # a key of LANES
    kind: str  # a key of KINDS
    name: str
    start: float  # seconds since the step began
    end: float
    nbytes: int = 0  # that are copied, or that the op reads and writes
    layer: str = ""  # of an op
    tensors: tuple[str, ...] = ()  # that the op reads and writes
    algorithm: str = ""
    waited: tuple[int, float] | None = None  # which instruction it waited for, and how many seconds
    index: int = 0  # of its instruction


@dataclass(frozen=True)
class Panel:
    """One policy's step, ready to be drawn."""

    policy: str
    row: Mapping[str, Any]  # as `Result.row` gives it (jobs/compare.py)
    seconds: float  # of the step
    memory: Sequence[tuple[float, int]]  # (seconds, bytes live from then on)
    bars: Sequence[Bar]
    turn: float | None = None  # seconds after which backward begins; None: there is no backward

    @property
    def lanes(self) -> list[str]:
        """The lanes to draw."""
        used = {b.lane for b in self.bars}
        return [lane for lane in LANES if lane not in RARE or lane in used]

    @property
    def stalls(self) -> list[tuple[float, float]]:
        """(start, end) of each time in which the compute stream was idle before an op, in seconds."""
        ends = [b for b in self.bars if b.lane == "compute"]
        gaps = [(a.end, b.start) for a, b in pairwise(ends) if b.start > a.end]
        if ends and ends[0].start > 0:
            gaps.insert(0, (0.0, ends[0].start))
        return gaps


def panel(policy: str, row: Mapping[str, Any], schedule: Schedule, trace: Trace) -> Panel:
    bars, turn, waits = [], None, waited(schedule, trace)
    more: dict[str, Any]
    for span in trace.spans:
        x = schedule.instructions[span.index]
        if isinstance(x, Compute) and turn is None and x.op.during is Pass.BACKWARD:
            turn = span.start
        if isinstance(x, (Compute, Offload, Prefetch, Stash, Fetch)):
            more = _of_op(x) if isinstance(x, Compute) else {"nbytes": _tensor(x).nbytes}
            more |= {"waited": waits.get(span.index), "index": span.index}
            bars.append(Bar(span.stream, _kind(x), span.name, span.start, span.end, **more))
    return Panel(policy, row, trace.seconds, trace.memory, sorted(bars, key=lambda b: b.start), turn)


def waited(schedule: Schedule, trace: Trace) -> dict[int, tuple[int, float]]:
    """{instruction: (the one that it waited for, seconds)}, of those that began later than their stream was free.

    If it waited for several, the one that ended last counts."""
    spans = {span.index: span for span in trace.spans}
    pending: dict[Stream, list[int]] = {}
    free: dict[Stream, float] = {}
    result = {}
    for i, x in enumerate(schedule.instructions):
        if isinstance(x, Wait):
            pending.setdefault(x.stream, []).append(x.on)
        elif i in spans:
            span = spans[i]
            on = max(pending.pop(span.stream, []), key=lambda k: spans[k].end, default=None)
            if on is not None:
                seconds = min(spans[on].end, span.start) - free.get(span.stream, 0.0)
                if seconds > 0:
                    result[i] = on, seconds
            free[span.stream] = span.end
    return result


def _tensor(x: Offload | Prefetch | Stash | Fetch) -> Tensor:
    return x.staging_slot.tensor if isinstance(x, (Stash, Fetch)) else x.residency.tensor


def _of_op(x: Compute) -> dict[str, Any]:
    tensors = dict.fromkeys((*x.op.reads, *x.op.writes))
    return {
        "nbytes": nbytes(tensors), "layer": x.op.layer, "tensors": tuple(t.name for t in tensors),
        "algorithm": x.algorithm.name,
    }  # fmt: skip


def _kind(x: Compute | Offload | Prefetch | Stash | Fetch) -> str:
    if isinstance(x, (Stash, Fetch)):
        return "store"
    if isinstance(x, Offload):
        return "out"
    if isinstance(x, Prefetch):
        return "in"
    if x.stream in ("net", "host"):
        return x.stream
    if x.run:
        return "again"
    if x.op.during is Pass.UPDATE:
        return "update"
    if x.op.family == "convolution":
        return "convolution"
    return "inner" if x.op.family in PRODUCTS else "other"
