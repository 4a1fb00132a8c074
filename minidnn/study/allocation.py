"""How many bytes a schedule's buffers take in a pool, allocation by allocation, beyond those that live at once.

vDNN++ names fragmentation as vDNN's third bottleneck and compares ways to allocate: first, best and worst fit, from one
end of the pool or from both, in several orders. Its tables were not to be had; this is the same question put to our
schedules, answered by its authors' procedure: begin with a pool of the live peak, allocate and free through one step,
and where a request finds no gap, add what it lacks to the largest one (and half a per cent at least) and begin again.

From both ends means: what lives from the forward pass into the backward pass is put at the right end, and what comes
and goes at the left, so that short lives leave no holes between long ones. The order "start" is the one that a pool has
at run time; the others know the whole step beforehand, as our own placement does (memory/lowering/placement.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from minidnn.memory.lowering.placement import ORDERS, live_peak
from minidnn.memory.schedule import Buffer, Schedule, aligned
from minidnn.program import Pass

# Which of the gaps that are large enough, given their sizes from the end at which the buffer is put.
FITS: dict[str, Callable[[np.ndarray], int]] = {
    "first": lambda sizes: 0,
    "best": lambda sizes: int(np.argmin(sizes)),
    "worst": lambda sizes: int(np.argmax(sizes)),
}


GRAIN = 200  # a pool grows by half a per cent of the live peak at least


@dataclass(frozen=True)
class Cell:
    """One way to allocate, and what it takes; bytes are aligned, and without what lives for the whole step."""

    fit: str  # "": the schedule's own placement, which `order` names
    two_ended: bool
    order: str
    needed: int
    live_peak: int

    @property
    def overhead(self) -> float:
        """Bytes lost to fragmentation, over the live peak."""
        return self.needed / self.live_peak - 1


def table(schedule: Schedule, orders: Iterable[str] = tuple(ORDERS)) -> Iterator[Cell]:
    """Every fit, one end and two, in these orders, for the buffers of one schedule."""
    buffers, peak = coming_and_going(schedule)
    lasting = lasting_maps(schedule)
    for order in orders:
        for fit in FITS:
            for two_ended in (False, True):
                needed = pool_size(buffers, order, fit, lasting if two_ended else (), peak)
                yield Cell(fit, two_ended, order, needed, peak)


def placed(schedule: Schedule) -> Cell:
    """What the schedule's own placement takes."""
    buffers, peak = coming_and_going(schedule)
    lowest = min(schedule.offset[b] for b in buffers)
    return Cell("", False, f"placed by {schedule.placement}", schedule.arena - lowest, peak)


def coming_and_going(schedule: Schedule) -> tuple[list[Buffer], int]:
    """The buffers that come and go, and their live peak in aligned bytes."""
    end = len(schedule.plan.order)
    buffers = [b for b in schedule.buffers if not b.home and b.hi - b.lo < end]
    return buffers, live_peak(buffers, end, lambda b: aligned(b.nbytes))[0]


def lasting_maps(schedule: Schedule) -> set[Buffer]:
    """What lives on the device from the forward pass into the backward pass."""
    order = schedule.plan.order
    turn = next((p for p, op in enumerate(order) if op.during is Pass.BACKWARD), len(order))
    return {b for b in schedule.buffers if not b.home and b.lo < turn < b.hi}


def pool_size(buffers: Sequence[Buffer], order: str, fit: str, right: Collection[Buffer], at_least: int) -> int:
    """The pool that it takes, from `at_least` bytes on. `right`: buffers put at the pool's right end."""
    pool, sequence = at_least, sorted(buffers, key=ORDERS[order])
    while lacking := _lacking(sequence, FITS[fit], right, pool):
        pool += max(lacking, aligned(at_least // GRAIN))
    return pool


def _lacking(sequence: Sequence[Buffer], fit: Callable, right: Collection[Buffer], pool: int) -> int:
    """How many bytes the first buffer that finds no gap in `pool` bytes lacks; 0: all are placed."""
    n = len(sequence)
    lo, hi, off, top = (np.zeros(n, np.int64) for _ in range(4))  # of placed buffers, sorted by offset
    for count, b in enumerate(sequence):
        size = aligned(b.nbytes)
        alive = np.flatnonzero((lo[:count] < b.hi) & (hi[:count] > b.lo))
        starts = np.concatenate(([0], np.maximum.accumulate(top[alive]))) if len(alive) else np.zeros(1, np.int64)
        gaps = np.concatenate((off[alive], [pool])) - starts
        fits = np.flatnonzero(gaps >= size)
        if not len(fits):
            return size - int(gaps.max())
        if b in right:
            gap = fits[::-1][fit(gaps[fits[::-1]])]
            at = int(starts[gap] + gaps[gap] - size)
        else:
            at = int(starts[fits[fit(gaps[fits])]])
        i = int(np.searchsorted(off[:count], at))
        for array, value in ((lo, b.lo), (hi, b.hi), (off, at), (top, at + size)):
            array[i + 1 : count + 1] = array[i:count]
            array[i] = value
    return 0
