"""Fragmentation: how much larger than the live peak a pool must be if a schedule's buffers are allocated one by one.

vDNN++ compares ways to allocate, and its tables were not available. Here our schedules are measured by its authors'
procedure (minidnn/memory/packing/pool.py). Under `--placement` a step runs in such a pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from minidnn.costs import Heuristic
from minidnn.memory.lowering.placement import lasting_maps, problem
from minidnn.memory.packing.greedy import ORDERS
from minidnn.memory.packing.pool import FITS, pool_size
from minidnn.memory.schedule import ALIGNMENT, Buffer, Schedule, aligned, live_peak


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
    lasting = lasting_maps(buffers, schedule.plan)
    for order in orders:
        for fit in FITS:
            for two_ended in (False, True):
                needed = pool_size(problem(buffers), Heuristic(fit, two_ended, order), lasting, ALIGNMENT)
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
