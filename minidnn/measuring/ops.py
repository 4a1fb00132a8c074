"""Measures the seconds of each (op, algorithm) of a program on this machine, and the copies.

Each op runs alone, warm, in buffers of its own that hold ordinary numbers. The median of a few runs counts. A short op
runs many times without a gap, so that the time of its launch does not count. On a device in the host's memory the
seconds within whole steps count instead, if there is room for such steps (measuring/steps.py). Costs do not say how
much copies and ops slow each other down (docs/costs.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from statistics import median

import numpy as np

from minidnn.costs import Costs, Measurements, key, measured
from minidnn.formats import floating
from minidnn.measuring.link import link, opened
from minidnn.measuring.steps import within_steps
from minidnn.memory.execution.device import Device
from minidnn.memory.execution.host import free_memory
from minidnn.memory.execution.runtime import Bound, Call, Runtime
from minidnn.memory.schedule import aligned
from minidnn.program import Algorithm, Op, Program, Role, Tensor

REPEATS = 5  # runs of each op
ENOUGH = 0.5  # seconds: an op whose runs took this long together is not repeated further
SLOW = 3.0  # a way to do an op that takes so many times as long as the best one is not measured again
GROUP = 1e-3  # seconds that a group of short runs should last
MOST = 20  # the most runs in a group
REPEATED = 1 << 20  # a tensor with more values than this repeats them

Tell = Callable[[int, int, str], object]


def measure(
    device: Device,
    programs: Sequence[Program],
    known: Measurements,
    again: bool = False,
    tell: Tell = lambda done, of, name: None,
) -> Costs:
    """Measure all that `known` lacks (with `again`: everything), add it to `known`, save it, and return the costs.

    `tell(done, of, name)` is called before each measurement. Raises NotKept before the first one if `known` could not
    be saved.
    """
    wanted: dict[str, tuple[Op, Algorithm]] = {}
    for program in programs:
        for op in program.ops:
            for algorithm in device.algorithms(op):
                k = key(op, algorithm)
                if again or k not in known.seconds:
                    wanted.setdefault(k, (op, algorithm))
    link_wanted = again or not (known.bandwidth_out and known.beside)
    if wanted or link_wanted:
        known.check_writable()
    if link_wanted:
        found = link(device)
        known.bandwidth_out, known.bandwidth_in, known.latency = found.out, found.back, found.latency
        known.beside = found.beside()
    try:
        for done, (k, (op, algorithm)) in enumerate(wanted.items()):
            tell(done, len(wanted), f"{op.name} [{algorithm.name}]")
            known.seconds[k] = seconds(device, op, algorithm)
        if wanted and not device.own_memory:
            _within_steps(device, programs, known, wanted, tell)
    finally:  # after Ctrl-C, too, the measurements so far are saved
        if wanted or link_wanted:
            known.save()
    return measured(device, known)


def _within_steps(
    device: Device, programs: Sequence[Program], known: Measurements, wanted: Container[str], tell: Tell
) -> None:
    """Replace the wanted seconds in `known` by those within steps of the programs, for a device in host memory."""
    for program in programs:

        def tell_steps(done: int, of: int, name: str = program.name) -> None:
            tell(done, of, f"steps of {name}")

        taken = within_steps(device, program, measured(device, known), free_memory() // 2, tell_steps)
        known.seconds |= {k: seconds for k, seconds in taken.items() if k in wanted}


def seconds(device: Device, op: Op, algorithm: Algorithm, repeats: int = REPEATS) -> float:
    """The median seconds of one run of `op` with this algorithm, alone, in memory of its own."""
    places, size = {}, 0
    for t in op.tensors:
        places[t], size = size, size + aligned(t.nbytes)
    random = np.random.default_rng(0)
    with opened(device, size + aligned(algorithm.workspace), 0) as runtime:
        for t, at in places.items():
            runtime.write(runtime.arena[at : at + t.nbytes], _filled(t, op, random))
        views = {t: device.view(runtime.arena[at : at + t.nbytes], t) for t, at in places.items()}
        call = device.prepare(op, algorithm, views, runtime.arena[size : size + algorithm.workspace])
        return timed(runtime, call, repeats=repeats)


def timed(runtime: Runtime, call: Call, best: float = math.inf, repeats: int = REPEATS) -> float:
    """The median seconds of one run of `call` on the compute stream, warm.

    best: the best seconds of other ways to do the same; a call that is much slower is not measured again"""
    prepared = runtime.bind([Bound(0, "compute", call)])
    first, second = runtime.seconds(prepared), runtime.seconds(prepared)  # the first run warms the caches
    if min(first, second) > SLOW * best:
        return min(first, second)
    times = max(1, min(MOST, int(GROUP / max(second, 1e-9))))
    taken: list[float] = []
    spent = 0.0
    while len(taken) < repeats and spent < ENOUGH:
        taken.append(runtime.seconds(prepared, times))
        spent += taken[-1] * times
    return max(median(taken), 1e-9)


def _filled(t: Tensor, op: Op, random: np.random.Generator) -> np.ndarray:
    """Bytes with such values of `t` as the op gets in a net, since a kernel might be quicker with zeros.

    A large tensor repeats its first values: on a GPU there are tensors of gigabytes, and NumPy makes 0.1 GB of random
    numbers a second."""
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
