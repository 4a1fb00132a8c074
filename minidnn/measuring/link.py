"""Measures the copies between a device and the host, in bytes per second: in one direction alone, in both directions at
once, and while the device computes. It also measures how much slower the device computes meanwhile. On a device whose
streams are the host's threads, copies and ops share one memory and its cores, and each copy takes these from an op and
gives them back (`handoff`).

The device computes one of two ops, again and again. One waits for the device's memory (a sum of two gradients), the
other does arithmetic (an inner product). The ops of nets lie in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import numpy as np

from minidnn.costs import bound_by
from minidnn.memory.execution.device import Device, KernelFailed
from minidnn.memory.execution.runtime import BoundCall, Call, Runtime
from minidnn.memory.schedule import Stream, aligned
from minidnn.program import Algorithm, Op, Pass, Tensor

COPY_BYTES = 32 * 2**20
REPEATS = 5
ROUNDS = 15  # in which runs take turns
ENOUGH = 0.5  # seconds: a measurement whose runs took this long together is not repeated further
LONGER = 2.0  # the computing lasts so many times as long as the copies during it, but
MOST = 2000  # it has at most so many runs of the op
SUMMED = 1 << 22  # the values of each summand: more than caches hold
SIDE = 1024  # the rows and columns of the inner product's matrices
FEW = 64  # bytes of a copy that takes no time itself
BRIEF = 160  # the rows and columns of a product that takes some ten microseconds
UNITS = 10  # of ops and copies in a run of `handoff`
TURNS = 6  # runs of `handoff` for each of `repeats`, and the fewest


@dataclass(frozen=True)
class Computing:
    """Copies while an op runs again and again on the compute stream.

    out, back: bytes per second, each direction measured by itself
    slower:    seconds of many runs of the op with copies in both directions, divided by their seconds without copies;
               the copies last for about half of the runs
    drag_out, drag_in: seconds of the runs' work that are lost per second of a copy, each direction by itself; more than
               1 where a thread that copies keeps the others waiting
    """

    bound_by: str  # MEMORY or ARITHMETIC (costs/costs.py)
    op: str  # the op's kind
    out: float
    back: float
    slower: float
    drag_out: float
    drag_in: float


@dataclass(frozen=True)
class Link:
    """Bytes per second of copies between device and host.

    out, back:               each direction alone
    out_beside, back_beside: each direction while a copy in the other direction runs
    latency:                 seconds before a copy's first byte; where the host's threads copy, those of `handoff`
    computing:               the same copies while the device computes
    """

    out: float
    back: float
    out_beside: float
    back_beside: float
    latency: float
    computing: tuple[Computing, ...] = ()

    def beside(self) -> list[dict[str, Any]]:
        """`computing` as plain values, for files and for `--json`."""
        return [
            {
                "bound_by": c.bound_by,
                "op": c.op,
                "bandwidth_out": c.out,
                "bandwidth_in": c.back,
                "slower": c.slower,
                "drag_out": c.drag_out,
                "drag_in": c.drag_in,
            }
            for c in self.computing
        ]


def link(device: Device, nbytes: int = COPY_BYTES, repeats: int = REPEATS, beside: Sequence[Op] | None = None) -> Link:
    """Measure the copies between this device and the host, with copies of `nbytes` and medians of `repeats` runs.

    beside: the ops that the device computes meanwhile; None: those of `ops`"""
    with opened(device, 2 * nbytes, 2 * nbytes) as runtime:
        runtime.host.fill(1)
        for half in (runtime.arena[:nbytes], runtime.arena[nbytes : 2 * nbytes]):
            runtime.write(half, runtime.host[:nbytes])
        both = copies(runtime, nbytes)

        def rate(stream: Stream, *bound: BoundCall) -> float:
            return nbytes / median_seconds(runtime, bound, repeats, stream)

        return Link(
            rate("out", both[0]),
            rate("in", both[1]),
            rate("out", *both),
            rate("in", *both),
            median_seconds(runtime, [copies(runtime, nbytes, FEW)[0]], repeats, "out")
            if device.own_memory
            else handoff(device, TURNS * repeats),
            tuple(computing(device, op, nbytes) for op in beside or ops()),
        )


def copies(runtime: Runtime, nbytes: int, size: int | None = None, at: int = 0) -> tuple[BoundCall, BoundCall]:
    """Two copies of `size` bytes (None: `nbytes`), one out and one in.

    The arena from `at` on and the host have two halves of `nbytes` each. The copy out uses the first halves, the copy
    in the second ones."""
    size = nbytes if size is None else size
    first, last = slice(0, size), slice(2 * nbytes - size, 2 * nbytes)
    there, here = runtime.arena[at : at + 2 * nbytes], runtime.host
    return (
        BoundCall(1, "out", runtime.copy(here[first], there[first], "out")),
        BoundCall(2, "in", runtime.copy(there[last], here[last], "in")),
    )


def ops(summed: int = SUMMED, side: int = SIDE) -> tuple[Op, Op]:
    """(an op that waits for the device's memory, an op that does arithmetic)."""
    a, b, total = (Tensor(name, (summed,)) for name in ("a", "b", "total"))
    x, w, y = (Tensor(name, (side, side)) for name in ("x", "w", "y"))
    return (
        Op("sum", "gradient.add", "link", Pass.BACKWARD, (a, b), (total,), flops=summed),
        Op("product", "inner_product.forward", "link", Pass.FORWARD, (x, w), (y,), flops=2 * side**3),
    )


def computing(device: Device, op: Op, nbytes: int, rounds: int = ROUNDS) -> Computing:
    """Measure copies of `nbytes` while the device runs this op again and again.

    The cost of a copy is small beside the noise of other programs, so runs with and without copies take turns."""
    with _bound(device, op, nbytes) as (runtime, call):
        both = copies(runtime, nbytes)
        one = median_seconds(runtime, [BoundCall(0, "compute", call)], 2, "compute")
        copying = max(median_seconds(runtime, [c], 2, c.stream) for c in both)
        times = max(1, min(MOST, int(LONGER * copying / one) + 1))

        def many() -> None:
            for _ in range(times):
                call()

        work = BoundCall(0, "compute", many)
        alone, *beside, all_ = in_turns(runtime, [[work], [work, both[0]], [work, both[1]], [work, *both]], rounds)
    copied, lost = [], []
    for c, runs in zip(both, beside, strict=True):
        copied.append(median(run[c.stream] for run in runs))
        lost.append(median(run["compute"] - own["compute"] for run, own in zip(runs, alone, strict=True)))
    drag = [max(0.0, more) / seconds for more, seconds in zip(lost, copied, strict=True)]
    out, back = (nbytes / seconds for seconds in copied)
    slower = median(run["compute"] / own["compute"] for run, own in zip(all_, alone, strict=True))
    return Computing(bound_by(op), op.kind, out, back, slower, *drag)


@contextmanager
def _bound(device: Device, op: Op, nbytes: int) -> Iterator[tuple[Runtime, Call]]:
    """A runtime with room for `copies` of `nbytes`, and the op bound there, behind them."""
    places, at = {}, 2 * aligned(nbytes)
    for t in op.tensors:
        places[t], at = at, at + aligned(t.nbytes)
    with opened(device, at + workspace(device, op), 2 * nbytes) as runtime:
        runtime.host.fill(1)
        runtime.write(runtime.arena[: 2 * nbytes], runtime.host)
        for t in op.tensors:
            values = np.linspace(0.1, 1, t.size, dtype=np.float32)  # no zeros, with which a kernel might be quicker
            runtime.write(runtime.arena[places[t] : places[t] + t.nbytes], values.view(np.uint8))
        views = {t: device.view(runtime.arena[at : at + t.nbytes], t) for t, at in places.items()}
        _, call = first_that_runs(device, runtime, op, views, at)
        yield runtime, call


def handoff(device: Device, rounds: int) -> float:
    """Seconds that a step takes longer by each copy of a few bytes, where a thread of the host makes it. The thread is
    woken, takes a core from the op that runs, and wakes who waits for the copy.

    Short ops run with such copies between them, and without. The two take turns."""
    with _bound(device, ops(FEW, BRIEF)[1], FEW) as (runtime, call):
        there, back = (copy.call for copy in copies(runtime, FEW))
        bound: list[BoundCall] = []

        def add(stream: Stream, call: Call | None = None, on: int | None = None) -> int:
            bound.append(BoundCall(len(bound), stream, call, on))
            return len(bound) - 1

        for _ in range(UNITS):  # as where a tensor leaves and returns: an op each before, between and after
            add("out", on=add("compute", call))
            add("in", on=add("out", there))
            arrived = add("in", back)
            add("compute", call)
            add("compute", on=arrived)
            add("compute", call)
        alone = [b for b in bound if b.stream == "compute" and b.on is None]
        prepared = [runtime.bind(one) for one in (bound, alone)]
        taken: list[list[float]] = []
        while len(taken) <= rounds and (len(taken) <= TURNS or sum(map(sum, taken)) < ENOUGH):
            taken.append([runtime.run_timed(one)[1] for one in prepared])
    more, less = (quantiles(each, n=4)[0] for each in zip(*taken[1:], strict=True))  # other programs only lengthen them
    return max((more - less) / (2 * UNITS), 1e-9)


def workspace(device: Device, op: Op) -> int:
    """The most bytes of workspace that an algorithm of the op needs."""
    return max(a.workspace for a in device.algorithms(op))


def first_that_runs(
    device: Device, runtime: Runtime, op: Op, views: Mapping[Tensor, Any], at: int
) -> tuple[Algorithm, Call]:
    """The first algorithm of the op that the device does not refuse to run, and its call. The workspace lies in the
    arena from `at` on."""
    while True:
        algorithm = device.algorithms(op)[0]
        call = device.prepare(op, algorithm, views, runtime.arena[at : at + algorithm.workspace])
        if not device.in_doubt(op, algorithm):
            return algorithm, call
        try:
            runtime.attempt(call)
        except KernelFailed as refusal:
            device.drop(op, algorithm, refusal)


def median_seconds(runtime: Runtime, bound: Sequence[BoundCall], repeats: int, stream: Stream) -> float:
    """The median seconds of the instructions on that stream, as in `medians`."""
    return medians(runtime, bound, repeats)[stream]


def medians(runtime: Runtime, bound: Sequence[BoundCall], repeats: int) -> dict[Stream, float]:
    """{stream: the median seconds of its instructions}."""
    (runs,) = in_turns(runtime, [bound], repeats)
    return {stream: median(run[stream] for run in runs) for stream in runs[0]}


def in_turns(runtime: Runtime, several: Sequence[Sequence[BoundCall]], rounds: int) -> list[list[dict[Stream, float]]]:
    """For each of these, by rounds: {stream: seconds of its longest instruction}.

    A first round is not counted: in it pages and a library's caches are used for the first time."""
    prepared = [runtime.bind(bound) for bound in several]
    taken: list[list[dict[Stream, float]]] = [[] for _ in several]
    longest = 0.0
    for number in range(rounds + 1):
        for result, one in zip(taken, prepared, strict=True):
            spans, seconds = runtime.run_timed(one)
            longest += seconds
            if number:
                result.append({stream: 1e-9 for _, stream, _, _ in spans})
                for _, stream, start, end in spans:
                    result[-1][stream] = max(result[-1][stream], end - start)
        if number and longest >= ENOUGH:
            break
    return taken


@contextmanager
def opened(device: Device, arena: int, host: int) -> Iterator[Runtime]:
    """A runtime of the device with so many bytes in the arena and on the host; it is closed at the end."""
    runtime = device.runtime(arena, host)
    try:
        yield runtime
    finally:
        runtime.close()
