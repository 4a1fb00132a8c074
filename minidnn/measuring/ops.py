"""Seconds of every (op, algorithm) of a program, and of copies, taken on the machine at hand.

Each op runs alone, in buffers of its own filled with ordinary numbers, warm, and the median of a few runs counts:
what one kernel takes when nothing else runs. A short one runs many times without a gap, so that what launching it takes
does not count. Where the host's memory is the device's, what it takes within whole steps counts instead, if they find
room (steps.py). Copies that run beside compute are not foreseen here (docs/costs.md).
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

REPEATS = 5  # of each op
ENOUGH = 0.5  # seconds: an op that took this long in all is not repeated further
SLOW = 3.0  # times the best of its like: an algorithm that is this slow is not measured again
GROUP = 1e-3  # seconds that a group of short runs should last,
MOST = 20  # and how many they are at most
REPEATED = 1 << 20  # values of a large tensor

Tell = Callable[[int, int, str], object]


def measure(
    device: Device,
    programs: Sequence[Program],
    known: Measurements,
    again: bool = False,
    tell: Tell = lambda done, of, name: None,
) -> Costs:
    """Fill `known` with what it lacks (with `again`: with everything), save it, and return the costs.

    `tell(done, of, name)` is called before each measurement. Raises NotKept before any, if they could not be saved.
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
    finally:  # Ctrl-C, too, keeps what is measured
        if wanted or link_wanted:
            known.save()
    return measured(device, known)


def _within_steps(
    device: Device, programs: Sequence[Program], known: Measurements, wanted: Container[str], tell: Tell
) -> None:
    """Where the host's memory is the device's: what was wanted anew as it is within steps of its program."""
    for program in programs:

        def tell_steps(done: int, of: int, name: str = program.name) -> None:
            tell(done, of, f"steps of {name}")

        taken = within_steps(device, program, measured(device, known), free_memory() // 2, tell_steps)
        known.seconds |= {k: seconds for k, seconds in taken.items() if k in wanted}


def seconds(device: Device, op: Op, algorithm: Algorithm, repeats: int = REPEATS) -> float:
    """The median seconds of one run of `op`, alone, in memory of its own."""
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
    """The median seconds of one run of what `call` does on the compute stream, warm. best: of other ways to do it; one
    that is much slower is not measured again."""
    prepared = runtime.bind([Bound(0, "compute", call)])
    first, second = runtime.seconds(prepared), runtime.seconds(prepared)  # the first warms
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
