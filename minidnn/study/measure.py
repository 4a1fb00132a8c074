"""Seconds of every (op, algorithm) of a program, and of copies, taken on the machine at hand.

Each op runs alone, in buffers of its own filled with ordinary numbers, warm, and the median of a few runs counts:
what one kernel takes when nothing else runs. Copies that run beside compute are not foreseen here (docs/costs.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from minidnn.costs import Costs, Measurements, key, measured
from minidnn.memory.threads import page_aligned
from minidnn.program import Algorithm, Op, Program, Role, Tensor

REPEATS = 5  # of each op
ENOUGH = 0.5  # seconds: an op that took this long in all is not repeated further
COPY_BYTES = 32 * 2**20


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
        known.bandwidth_out, known.bandwidth_in, known.latency = copies()
    for done, (k, (op, algorithm)) in enumerate(wanted.items()):
        tell(done, len(wanted), f"{op.name} [{algorithm.name}]")
        known.seconds[k] = seconds(device, op, algorithm)
    if wanted or again:
        known.save()
    return measured(device, known)


def seconds(device: Any, op: Op, algorithm: Algorithm, repeats: int = REPEATS) -> float:
    """The median seconds of one run of `op`."""
    random = np.random.default_rng(0)
    views = {t: _filled(device, t, op, random) for t in op.tensors}
    workspace = page_aligned(algorithm.workspace)  # a name of its own: a call knows addresses, it keeps nothing alive
    call = device.prepare(op, algorithm, views, workspace)
    call()  # warm: first use of pages, of a library's caches
    taken: list[float] = []
    while len(taken) < repeats and sum(taken) < ENOUGH:
        began = perf_counter()
        call()
        taken.append(perf_counter() - began)
    return max(median(taken), 1e-9)


def _filled(device: Any, t: Tensor, op: Op, random: np.random.Generator) -> np.ndarray:
    """The tensor in bytes of its own, with values an op may meet: no kernel is quick because all is zero."""
    view = device.array(page_aligned(t.nbytes), t)
    if t not in op.reads or not t.dtype.startswith("float"):
        view[...] = 0  # labels, pooling indices, iterations: valid for every op
    elif t.role in (Role.STATE, Role.EXTRA):
        view[...] = random.random(t.shape, np.float32) + 0.5  # variances and their like are positive
    else:
        view[...] = random.standard_normal(t.shape, np.float32)
    return view


def copies(nbytes: int = COPY_BYTES, repeats: int = REPEATS) -> tuple[float, float, float]:
    """(bytes per second out, in, seconds before a copy's first byte), copying as the machine copies."""
    device, host = page_aligned(nbytes), page_aligned(nbytes)
    device.fill(1)
    host.fill(1)
    small = slice(0, 64)

    def rate(to: np.ndarray, source: np.ndarray) -> float:
        np.copyto(to, source)
        return nbytes / median(_timed(lambda: np.copyto(to, source)) for _ in range(repeats))

    latency = median(_timed(lambda: np.copyto(host[small], device[small])) for _ in range(repeats))
    return rate(host, device), rate(device, host), latency


def _timed(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began
