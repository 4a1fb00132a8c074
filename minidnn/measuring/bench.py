"""Times ops one after another, each alone, in one arena that is as large as the largest of them needs.

The arena is filled with ordinary numbers once. The tensors that an op only reads lie at its beginning, everything else
at its end. The ops with the most bytes to read come first, so no op reads what another one has written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from statistics import median

import numpy as np

from minidnn.costs import geometry
from minidnn.formats import HALF, floating, usable
from minidnn.measuring.link import opened
from minidnn.memory.execution.device import Device, KernelFailed
from minidnn.memory.execution.runtime import BoundCall, Call, Runtime
from minidnn.memory.schedule import aligned
from minidnn.program import Algorithm, Op, Tensor

REPEATS, ON_HOST = 3, 5  # groups of runs of each op: on a device of its own, and on the host, which is interrupted
ENOUGH = 0.5  # seconds: an op whose runs took this long together is not repeated further
SLOW = 3.0  # a way to do an op that takes so many times as long as the best one is not measured again
GROUP = 1e-3  # seconds that a group of short runs should last
FEW, MOST = 4, 20  # runs in the first group, and the most in a group
NUMBERS = 1 << 20  # different numbers in the arena: NumPy makes 0.1 GB of random numbers a second
PIECE = 64 << 20  # bytes that are copied to the arena at once

Tell = Callable[[int, int, str], object]
Ops = Mapping[str, tuple[Op, Algorithm]]


def each(
    device: Device, ops: Ops, tell: Tell = lambda done, of, name: None
) -> Iterator[tuple[str, float | KernelFailed]]:
    """For each of the wanted, its name and its seconds; or the refusal of the device, which has dropped the algorithm.

    tell: called as tell(done, of, name) before each

    Raises KernelFailed if the whole device has failed, and BadInput if it has refused every algorithm of an op."""
    if not ops:
        return
    room = max(_room(op, algorithm) for op, algorithm in ops.values())
    repeats = REPEATS if device.own_memory else ON_HOST
    best: dict[str, float] = {}
    with opened(device, room, min(room, PIECE)) as runtime:
        _fill(runtime, room, _format(ops))
        device.compile(ops.values())
        ordered = sorted(ops.items(), key=lambda item: -sum(aligned(t.nbytes) for t in _only_read(item[1][0])))
        for done, (name, (op, algorithm)) in enumerate(ordered):
            tell(done, len(ops), f"{op.name} [{algorithm.name}]")
            alike = geometry(op)
            try:
                seconds = timed(runtime, _call(device, runtime, op, algorithm), best.get(alike, math.inf), repeats)
            except KernelFailed as refusal:
                device.drop(op, algorithm, refusal)
                yield name, refusal
                continue
            best[alike] = min(best.get(alike, math.inf), seconds)
            yield name, seconds


def timed(runtime: Runtime, call: Call, best: float = math.inf, repeats: int = REPEATS) -> float:
    """The median seconds of one run of `call` on the compute stream, warm.

    best: the best seconds of other ways to do the same; a call that is much slower is not measured again"""
    prepared = runtime.bind([BoundCall(0, "compute", call)])
    first, second = runtime.seconds(prepared), runtime.seconds(prepared)  # the first run warms the caches
    if min(first, second) < GROUP:  # one run alone may take less than its launch, which no other way is judged by
        first = second = runtime.seconds(prepared, FEW)
    if min(first, second) > SLOW * best:
        return min(first, second)
    times = max(1, min(MOST, int(GROUP / max(second, 1e-9))))
    taken: list[float] = []
    spent = 0.0
    while len(taken) < repeats and spent < ENOUGH:
        taken.append(runtime.seconds(prepared, times))
        spent += taken[-1] * times
    return max(median(taken), 1e-9)


def _call(device: Device, runtime: Runtime, op: Op, algorithm: Algorithm) -> Call:
    """The op bound to its places in the arena. Integers become 0, which is valid for every op: labels, pooling indices,
    iterations."""
    read = _only_read(op)
    places, at = {}, 0
    for t in read:
        places[t], at = at, at + aligned(t.nbytes)
    at = runtime.arena.nbytes - (_room(op, algorithm) - at)
    for t in op.tensors:
        if t not in places:
            places[t], at = at, at + aligned(t.nbytes)
            if not floating(t.dtype):
                runtime.fill(runtime.arena[places[t] : places[t] + t.nbytes], 0)()
    views = {t: device.view(runtime.arena[at : at + t.nbytes], t) for t, at in places.items()}
    return device.prepare(op, algorithm, views, runtime.arena[at : at + algorithm.workspace])


def _only_read(op: Op) -> list[Tensor]:
    """The tensors of numbers that the op leaves as they are."""
    return [t for t in dict.fromkeys(op.reads) if floating(t.dtype) and t not in op.writes]


def _room(op: Op, algorithm: Algorithm) -> int:
    return sum(aligned(t.nbytes) for t in op.tensors) + aligned(algorithm.workspace)


def _format(ops: Ops) -> str:
    """The narrowest number format of these ops. Two ordinary numbers of 16 bits are an ordinary float32, too."""
    result = {t.dtype for op, _ in ops.values() for t in op.tensors}
    return usable(next((name for name in HALF if name in result), "float32"))


def _fill(runtime: Runtime, room: int, format: str) -> None:
    """Fill the arena with positive numbers, since a kernel might be quicker with zeros; variances are positive, too."""
    numbers = np.abs(np.random.default_rng(0).standard_normal(NUMBERS, np.float32) + 0.1).astype(format)
    runtime.host[:] = np.resize(numbers.view(np.uint8), runtime.host.nbytes)
    for at in range(0, room, runtime.host.nbytes):
        part = runtime.arena[at : min(at + runtime.host.nbytes, room)]
        runtime.write(part, runtime.host[: part.nbytes])
