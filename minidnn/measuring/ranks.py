"""Measures the link between ranks: what messages cost alone, and how much they slow compute down beside them.

All ranks send equally many messages of the same bytes to all others, as in an exchange, and meet before each try. A try
lasts as long as its slowest rank; medians count. The numbers of a Link (costs/net.py) are fitted by least squares of
the relative errors, with no number below zero. A rank's own part is copied like a message's bytes.

Then each rank computes, an inner product again and again, with and without such messages beside it, in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, cycle
from statistics import median
from time import perf_counter

import numpy as np

from minidnn.costs import MOST_DRAG
from minidnn.costs.net import Link
from minidnn.measuring.link import first_that_runs, opened, ops, workspace
from minidnn.memory.execution.device import Device
from minidnn.memory.execution.runtime import BoundCall
from minidnn.memory.schedule import aligned
from minidnn.ranks.engine import Engine

# (messages to each rank, bytes of each)
TRIED = (
    (1, 64), (4, 64), (16, 64), (1, 1 << 12), (16, 1 << 12), (1, 1 << 16), (8, 1 << 16), (1, 1 << 20), (4, 1 << 20),
    (1, 1 << 22), (4, 1 << 22), (1, 1 << 24),
)  # fmt: skip
TRIES = 40
ROUNDS = 9  # in which compute takes turns with and without messages
BESIDE = 1 << 24  # bytes to each rank, beside compute
COLD = 1 << 20  # messages of so many bytes are taken from PLACES, in turns
PLACES = 8
OWN = 1 << 23  # bytes of a rank's own part
LONGER = 3.0  # compute lasts so many times as long as these


@dataclass(frozen=True)
class Trial:
    """The number of messages to each other rank, and their seconds."""

    messages: int
    nbytes: int
    seconds: float


def link(engine: Engine, device: Device, tries: int = TRIES) -> tuple[Link, list[Trial]]:
    """The link between all ranks of the engine, and the measurements that it was fitted to. Every rank calls it, and
    gets the same.

    Raises RankLost."""
    result = [_trial(engine, count, nbytes, tries) for count, nbytes in TRIED]
    latency, gap, per_byte = fitted(result, engine.ranks - 1)
    drag, own = _drag(engine, device), OWN / _own(engine, OWN, tries)
    title = f"measured between {engine.ranks} ranks, {device.name}"
    return Link(1 / per_byte, latency, gap, drag, title, own), result


def fitted(trials: Sequence[Trial], peers: int) -> tuple[float, float, float]:
    """(latency, gap, seconds per byte) of least squares."""
    rows = [[1.0, peers * t.messages - 1.0, peers * t.messages * float(t.nbytes)] for t in trials]
    scaled = np.array([[value / t.seconds for value in row] for row, t in zip(rows, trials, strict=True)])
    best, error = np.zeros(3), np.inf
    for kept in (list(c) for size in (1, 2, 3) for c in combinations(range(3), size)):
        part, *_ = np.linalg.lstsq(scaled[:, kept], np.ones(len(trials)), rcond=None)
        off = float(np.sum((scaled[:, kept] @ part - 1) ** 2))
        if off < error and (part >= 0).all() and kept[-1] == 2 and part[-1] > 0:
            best, error = np.zeros(3), off
            best[kept] = part
    latency, gap, per_byte = best.tolist()
    return latency, gap, per_byte


def _trial(engine: Engine, count: int, nbytes: int, tries: int) -> Trial:
    return Trial(count, nbytes, _slowest(engine, _messages(engine, count, nbytes), tries))


def _own(engine: Engine, nbytes: int, tries: int) -> float:
    """Seconds in which each rank copies so many bytes, all at once."""
    some = [(np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)) for _ in range(PLACES)]
    turns = cycle([partial(np.copyto, *pair) for pair in some])
    return _slowest(engine, lambda: next(turns)(), tries)


def _slowest(engine: Engine, call: Callable[[], None], tries: int) -> float:
    """The median of the seconds until the last rank has ended this call, without the first try."""
    taken = []
    for _ in range(tries):
        engine.share(None)
        began = perf_counter()
        call()
        taken.append(perf_counter() - began)
    slowest = [max(each) for each in zip(*engine.share(taken), strict=True)]
    return median(slowest[1:] or slowest)


def _messages(engine: Engine, count: int, nbytes: int) -> Callable[[], None]:
    """A call that sends so many messages to each other rank.

    Their bytes lie in memory, as gradients do: the pages are written, and each call takes another of PLACES than the
    call before, so that caches do not hold them."""
    places = PLACES if count * nbytes >= COLD else 1

    def parts(rank: int) -> list[np.ndarray]:
        return [] if rank == engine.rank else [np.ones(nbytes, np.uint8) for _ in range(count)]

    def call() -> Callable[[], None]:
        return engine.transfer([parts(k) for k in range(engine.ranks)], [parts(k) for k in range(engine.ranks)])

    turns = cycle([call() for _ in range(places)])
    return lambda: next(turns)()


def _drag(engine: Engine, device: Device) -> float:
    """Seconds of compute's work that a second of messages takes away."""
    op, places, at = ops()[1], {}, 0
    for t in op.tensors:
        places[t], at = at, at + aligned(t.nbytes)
    with opened(device, at + workspace(device, op), 4096) as runtime:
        for t in op.tensors:
            values = np.linspace(0.1, 1, t.size, dtype=np.float32)
            runtime.write(runtime.arena[places[t] : places[t] + t.nbytes], values.view(np.uint8))
        views = {t: device.view(runtime.arena[place : place + t.nbytes], t) for t, place in places.items()}
        _, call = first_that_runs(device, runtime, op, views, at)
        messages = _messages(engine, 1, BESIDE)
        one = max(engine.share(runtime.seconds(runtime.bind([BoundCall(0, "compute", call)]), 3)))
        moved = max(engine.share(_trial(engine, 1, BESIDE, 5).seconds))
        times = max(1, int(LONGER * moved / one) + 1)

        def many() -> None:
            for _ in range(times):
                call()

        work = BoundCall(0, "compute", many)
        both = [runtime.bind(bound) for bound in ([work], [work, BoundCall(1, "net", messages)])]
        alone: list[dict[str, float]] = []
        beside: list[dict[str, float]] = []
        for _ in range(ROUNDS):
            for prepared, taken in zip(both, (alone, beside), strict=True):
                engine.share(None)
                spans, _ = runtime.run_timed(prepared)
                taken.append({stream: end - start for _, stream, start, end in spans})
    lost = median(b["compute"] - a["compute"] for a, b in zip(alone, beside, strict=True))
    sent = median(b["net"] for b in beside)
    return min(MOST_DRAG, median(engine.share(max(0.0, lost) / sent)))
