"""Fragmentation: how much larger than the live peak a pool must be if a schedule's buffers are allocated one by one.

vDNN++ names fragmentation as vDNN's third bottleneck and compares ways to allocate. These are first, best and worst
fit, from one end of the pool or from both, in several orders. Its tables were not available. Here our schedules are
measured by its authors' procedure. It begins with a pool of the live peak and allocates and frees through one step. If
a request finds no gap, the pool grows by the bytes that the largest gap lacks (at least half a per cent), and the step
begins again.

From both ends, a buffer that lives from the forward pass into the backward pass is put at the right end, any other at
the left. So short-lived buffers leave no holes between long-lived ones. A pool at run time sees requests in the order
"start". The other orders need to know the whole step beforehand, as our own placement does (memory/packing/).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from minidnn.memory.lowering.placement import problem
from minidnn.memory.packing.greedy import ORDERS
from minidnn.memory.schedule import Buffer, Schedule, aligned, live_peak
from minidnn.program import Pass

# fit -> the index of the gap to use. `sizes` are the bytes of the gaps that are large enough, in order from the end of
# the pool at which the buffer is put.
FITS: dict[str, Callable[[np.ndarray], int]] = {
    "first": lambda sizes: 0,
    "best": lambda sizes: int(np.argmin(sizes)),
    "worst": lambda sizes: int(np.argmax(sizes)),
}


GRAIN = 200  # a pool grows by at least 1 / GRAIN of the live peak


@dataclass(frozen=True)
class Cell:
    """One way to allocate, and the pool that it needs. Bytes are aligned, without buffers that live the whole step."""

    fit: str  # "first", "best", "worst"; "": the schedule's own placement, which `order` names
    two_ended: bool
    order: str
    needed: int  # bytes of the pool
    live_peak: int  # bytes

    @property
    def overhead(self) -> float:
        """Bytes lost to fragmentation, over the live peak."""
        return self.needed / self.live_peak - 1


def table(schedule: Schedule, orders: Iterable[str] = tuple(ORDERS)) -> Iterator[Cell]:
    """A Cell for each of these orders with each fit, from one end and from both, for the buffers of one schedule."""
    buffers, peak = coming_and_going(schedule)
    lasting = lasting_maps(schedule)
    for order in orders:
        for fit in FITS:
            for two_ended in (False, True):
                needed = pool_size(buffers, order, fit, lasting if two_ended else (), peak)
                yield Cell(fit, two_ended, order, needed, peak)


def placed(schedule: Schedule) -> Cell:
    """The Cell of the schedule's own placement."""
    buffers, peak = coming_and_going(schedule)
    lowest = min(schedule.offset[b] for b in buffers)
    return Cell("", False, f"placed by {schedule.placement}", schedule.arena - lowest, peak)


def coming_and_going(schedule: Schedule) -> tuple[list[Buffer], int]:
    """The buffers that do not live the whole step, and their live peak in aligned bytes."""
    end = len(schedule.plan.order)
    buffers = [b for b in schedule.buffers if not b.persistent and b.hi - b.lo < end]
    return buffers, live_peak(buffers, end, lambda b: aligned(b.nbytes))[0]


def lasting_maps(schedule: Schedule) -> set[Buffer]:
    """The buffers that live on the device from the forward pass into the backward pass."""
    order = schedule.plan.order
    turn = next((p for p, op in enumerate(order) if op.during is Pass.BACKWARD), len(order))
    return {b for b in schedule.buffers if not b.persistent and b.lo < turn < b.hi}


def pool_size(buffers: Sequence[Buffer], order: str, fit: str, right: Collection[Buffer], at_least: int) -> int:
    """Bytes of the pool in which all these buffers find a place; at least `at_least`.

    right: the buffers that are put at the pool's right end."""
    pool, sequence = at_least, [buffers[i] for i in np.lexsort(ORDERS[order](problem(buffers)))]
    while lacking := _lacking(sequence, FITS[fit], right, pool):
        pool += max(lacking, aligned(at_least // GRAIN))
    return pool


def _lacking(sequence: Sequence[Buffer], fit: Callable, right: Collection[Buffer], pool: int) -> int:
    """Bytes by which the largest gap is too small for the first buffer that finds no place in a pool of `pool` bytes;
    0 if all find one."""
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
