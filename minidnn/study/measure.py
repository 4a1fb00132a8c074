"""Seconds of every (op, algorithm) of a program, and of copies, taken on the machine at hand.

Each op runs alone, in buffers of its own filled with ordinary numbers, warm, and the median of a few runs counts:
what one kernel takes when nothing else runs. Copies that run beside compute are not foreseen here (docs/costs.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from minidnn.costs import Costs, Measurements, key, measured
from minidnn.formats import floating
from minidnn.memory.machine import open_runtime
from minidnn.memory.runtime import Bound, Runtime
from minidnn.memory.schedule import Stream, aligned
from minidnn.program import Algorithm, Op, Program, Role, Tensor

REPEATS = 5  # of each op
ENOUGH = 0.5  # seconds: an op that took this long in all is not repeated further
COPY_BYTES = 32 * 2**20
REPEATED = 1 << 20  # values of a large tensor


def measure(
    device: Any,
    programs: Iterable[Program],
    known: Measurements,
    again: bool = False,
    tell: Callable[[int, int, str], object] = lambda done, of, name: None,
) -> Costs:
    """Fill `known` with what it lacks (with `again`: with everything), save it, and return the costs.

    `tell(done, of, name)` is called before each measurement.
    """
    wanted: dict[str, tuple[Op, Algorithm]] = {}
    for program in programs:
        for op in program.ops:
            for algorithm in device.algorithms(op):
                k = key(op, algorithm)
                if again or k not in known.seconds:
                    wanted.setdefault(k, (op, algorithm))
    if again or not known.bandwidth_out:
        found = link(device)
        known.bandwidth_out, known.bandwidth_in, known.latency = found.out, found.back, found.latency
    try:
        for done, (k, (op, algorithm)) in enumerate(wanted.items()):
            tell(done, len(wanted), f"{op.name} [{algorithm.name}]")
            known.seconds[k] = seconds(device, op, algorithm)
    finally:  # Ctrl-C, too, keeps what is measured
        if wanted or again:
            known.save()
    return measured(device, known)


def seconds(device: Any, op: Op, algorithm: Algorithm, repeats: int = REPEATS) -> float:
    """The median seconds of one run of `op`, alone, in memory of its own."""
    places, size = {}, 0
    for t in op.tensors:
        places[t], size = size, size + aligned(t.nbytes)
    random = np.random.default_rng(0)
    with _opened(device, size + aligned(algorithm.workspace), 0) as runtime:
        for t, at in places.items():
            runtime.write(runtime.arena[at : at + t.nbytes], _filled(t, op, random))
        views = {t: device.view(runtime.arena[at : at + t.nbytes], t) for t, at in places.items()}
        call = device.prepare(op, algorithm, views, runtime.arena[size : size + algorithm.workspace])
        return _median(runtime, [Bound(0, "compute", call)], repeats)


def _filled(t: Tensor, op: Op, random: np.random.Generator) -> np.ndarray:
    """Bytes of values that an op may meet: no kernel is quick because all is zero. Where they lie does not matter, and
    a large tensor repeats them: a GPU's are of gigabytes, and NumPy makes 0.1 GB of new ones a second."""
    bytes_ = np.zeros(t.nbytes, np.uint8)  # labels, pooling indices, iterations: valid for every op
    if t in op.reads and floating(t.dtype):
        values = bytes_.view(t.dtype)
        count = min(values.size, REPEATED)
        if t.role in (Role.STATE, Role.EXTRA):
            some = random.random(count, np.float32) + 0.5  # variances and their like are positive
        else:
            some = random.standard_normal(count, np.float32)
        for at in range(0, values.size, count):
            values[at : at + count] = some[: values.size - at]
    return bytes_


# ---- copies


@dataclass(frozen=True)
class Link:
    """Bytes per second between device and host: out and in alone, and each while the other runs too. `latency`:
    seconds before a copy's first byte."""

    out: float
    back: float
    out_beside: float
    back_beside: float
    latency: float


def link(device: Any, nbytes: int = COPY_BYTES, repeats: int = REPEATS) -> Link:
    """How the machine's copies fare on this device."""
    with _opened(device, 2 * nbytes, 2 * nbytes) as runtime:
        runtime.host.fill(1)
        for half in (runtime.arena[:nbytes], runtime.arena[nbytes : 2 * nbytes]):
            runtime.write(half, runtime.host[:nbytes])

        def copy(stream: Stream, size: int = nbytes) -> Bound:
            device_, host = runtime.arena, runtime.host
            if stream == "out":
                return Bound(0, "out", runtime.copy(host[:size], device_[:size], "out"))
            last = slice(2 * nbytes - size, 2 * nbytes)
            return Bound(1, "in", runtime.copy(device_[last], host[last], "in"))

        def rate(stream: Stream, *bound: Bound) -> float:
            return nbytes / _median(runtime, bound, repeats, stream)

        both = copy("out"), copy("in")
        return Link(
            rate("out", both[0]),
            rate("in", both[1]),
            rate("out", *both),
            rate("in", *both),
            _median(runtime, [copy("out", 64)], repeats, "out"),
        )


def _median(runtime: Runtime, bound: Sequence[Bound], repeats: int, stream: Stream = "compute") -> float:
    """The median seconds of what runs on that stream, warm: first use of pages and of a library's caches is over."""
    prepared = runtime.bind(bound)
    runtime.run(prepared)
    taken: list[float] = []
    while len(taken) < repeats and sum(taken) < ENOUGH:
        spans, _ = runtime.run_timed(prepared)
        taken += [end - start for _, s, start, end in spans if s == stream]
    return max(median(taken), 1e-9)


@contextmanager
def _opened(device: Any, arena: int, host: int) -> Iterator[Runtime]:
    runtime = open_runtime(device, arena, host)
    try:
        yield runtime
    finally:
        runtime.close()
