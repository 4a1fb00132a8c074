"""Steps in the Trace Event Format of Chrome, which Perfetto and chrome://tracing read.

A policy is a process, and a stream a thread of it, with a slice for each instruction. The stalls of compute have a
thread of their own. Bytes are counters. Times are whole nanoseconds, so that slices of a stream do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minidnn.memory.execution.lives import host_curves
from minidnn.memory.execution.trace import Span
from minidnn.memory.schedule import STREAMS, Compute, Fetch, Instruction, Offload, Prefetch, Schedule, Stash, Wait
from minidnn.report.step import Step

Event = dict[str, Any]

STALLS = len(STREAMS) + 1  # the thread of stalls; the streams are threads from 1 on
TRACKS = {
    "compute": "compute", "out": "copies out", "in": "copies in", "store": "into the store", "load": "out of the store",
    "net": "between ranks", "host": "by the host",
}  # fmt: skip
COUNTERS = {"pinned": "pinned host", "store": "ordinary host", "disk": "disk"}
WORDS = {
    Compute: "op", Offload: "copy out", Prefetch: "copy in", Stash: "into the store", Fetch: "out of the store",
}  # fmt: skip


def document(steps: Sequence[Step], other_data: Mapping[str, Any]) -> dict[str, Any]:
    """The document. told: the names and numbers of `otherData`"""
    events = [e for number, step in enumerate(steps, 1) for e in _process(number, step)]
    other = {**other_data, "steps": {step.policy: step.how for step in steps}}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}


def _process(pid: int, step: Step) -> Iterator[Event]:
    schedule, trace = step.schedule, step.trace
    used = {span.stream for span in trace.spans}
    yield _meta(pid, 0, "process_name", name=f"{step.policy}, {step.how}")
    yield _meta(pid, 0, "process_sort_index", sort_index=pid)
    for tid, stream in enumerate(STREAMS, 1):
        if stream in used:
            yield _meta(pid, tid, "thread_name", name=TRACKS[stream])
            yield _meta(pid, tid, "thread_sort_index", sort_index=tid)
    yield _meta(pid, STALLS, "thread_name", name="compute waits for")
    yield _meta(pid, STALLS, "thread_sort_index", sort_index=0)
    for span in trace.spans:
        x = schedule.instructions[span.index]
        yield _slice(pid, 1 + STREAMS.index(span.stream), span, span.name, _word(x), _args(x))
    for span in trace.waits:
        if span.stream == "compute":
            yield _slice(pid, STALLS, span, *_awaited(schedule, span))
    yield from _counter(pid, "device", trace.memory)
    for name, curve in host_curves(schedule, trace).items():
        yield from _counter(pid, COUNTERS[name], curve)


def _word(x: Instruction) -> str:
    words = {"net": "communication", "host": "op by the host"}
    return words.get(x.stream, WORDS[Compute]) if isinstance(x, Compute) else WORDS[type(x)]


def _slice(pid: int, tid: int, span: Span, name: str, category: str, args: Event) -> Event:
    start, end = round(span.start * 1e9), round(span.end * 1e9)
    of = {"name": name, "cat": category, "ph": "X", "pid": pid, "tid": tid}
    return {**of, "ts": start / 1000, "dur": (end - start) / 1000, "args": {"instruction": span.index, **args}}


def _args(x: Instruction) -> Event:
    """The facts of an instruction: bytes are those that an op reads and writes, or that a copy moves."""
    if isinstance(x, Compute):
        op = x.op
        result: Event = {
            "layer": op.layer, "kind": op.kind, "pass": op.during.value, "algorithm": x.algorithm.name,
            "workspace_bytes": x.algorithm.workspace, "bytes": op.nbytes, "flops": op.flops,
            "reads": [t.name for t in op.reads], "writes": [t.name for t in op.writes],
        }  # fmt: skip
        return {**result, "again": x.run} if x.run else result
    assert isinstance(x, (Offload, Prefetch, Stash, Fetch))
    tensor = x.residency.tensor if isinstance(x, (Offload, Prefetch)) else x.staging_slot.tensor
    result = {"tensor": tensor.name, "bytes": tensor.nbytes, "shape": list(tensor.shape), "type": tensor.dtype}
    return {**result, "ring_offset": x.staging_slot.at} if x.staging_slot is not None else result


def _awaited(schedule: Schedule, span: Span) -> tuple[str, str, Event]:
    """The name of a stall, its category, and the facts of the copy that compute waits for."""
    x = schedule.instructions[span.index]
    assert isinstance(x, Wait)
    on = schedule.instructions[x.on]
    return f"{_word(on)}: {span.name}", "stall", {"waits_for": x.on, **_args(on)}


def _counter(pid: int, name: str, curve: Sequence[tuple[float, int]]) -> Iterator[Event]:
    """A counter, which Perfetto calls by its name and the name of its value: "device bytes"."""
    for at, nbytes in curve:
        yield {"name": name, "ph": "C", "pid": pid, "ts": round(at * 1e9) / 1000, "args": {"bytes": nbytes}}


def _meta(pid: int, tid: int, what: str, **args: Any) -> Event:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": args}
