"""The simulator: a machine made of clocks, one per stream. It runs a schedule against a cost table, without kernels."""

from __future__ import annotations

from minidnn.costs import Costs
from minidnn.memory.execution.trace import Span, Trace, memory_curve, name_of
from minidnn.memory.schedule import (
    STREAMS,
    Alloc,
    Compute,
    Fetch,
    Free,
    Instruction,
    Offload,
    Prefetch,
    Schedule,
    Stash,
    Stream,
    Wait,
)


def simulate(schedule: Schedule, costs: Costs) -> Trace:
    """The trace of one step on the device that `costs` describes.

    A stream runs its instructions one after another, in the order of the schedule. Compute and the copies in both
    directions do not slow one another down.
    """
    clock: dict[Stream, float] = dict.fromkeys(STREAMS, 0.0)
    finished: dict[int, float] = {}
    spans: list[Span] = []
    moments: list[tuple[Instruction, float]] = []
    stall = 0.0
    for i, x in enumerate(schedule.instructions):
        if isinstance(x, Wait):
            behind = finished[x.on] - clock[x.stream]
            if behind > 0:
                clock[x.stream] += behind
                stall += behind if x.stream == "compute" else 0.0
        elif isinstance(x, (Alloc, Free)):
            moments.append((x, clock["compute"]))
        else:
            seconds = _seconds(x, schedule, costs)
            start = clock[x.stream]
            finished[i] = clock[x.stream] = start + seconds
            spans.append(Span(i, x.stream, name_of(x), start, start + seconds))
    return Trace(tuple(spans), max(clock.values()), stall, memory_curve(schedule, moments))


def _seconds(x: Compute | Offload | Prefetch | Stash | Fetch, schedule: Schedule, costs: Costs) -> float:
    if isinstance(x, Compute):
        return costs.seconds(x.op, x.algorithm)
    if isinstance(x, (Stash, Fetch)):
        assert schedule.staging is not None
        rate = schedule.staging.stash_seconds if isinstance(x, Stash) else schedule.staging.fetch_seconds
        return rate(x.leg.tensor.nbytes)
    bandwidth = costs.bandwidth_out if isinstance(x, Offload) else costs.bandwidth_in
    return costs.latency + x.stay.tensor.nbytes / bandwidth
