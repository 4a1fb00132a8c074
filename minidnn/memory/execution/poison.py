"""Debug mode fills freed bytes with NaN. This module says which bytes it may fill."""

from __future__ import annotations

from bisect import bisect

from minidnn.memory.lowering.lower import Clocks
from minidnn.memory.schedule import Alloc, Free, Prefetch, Schedule, Wait


def fillable(schedule: Schedule) -> set[int]:
    """Indices of the Frees whose bytes no copy back may write before compute's next op.

    A copy back waits for the former users of its bytes, not for their Free, which is no event. So it may run while
    compute fills them, unless it comes after a later op.
    """
    clocks = Clocks()
    copies: list[tuple[int, int, int, int]] = []  # of a copy back: its index, the last op before it, its bytes [lo, hi)
    for i, x in enumerate(schedule.instructions):
        if isinstance(x, Wait):
            clocks.wait(x.stream, x.on)
        elif not isinstance(x, (Alloc, Free)):
            clocks.issue(i, x.stream)
            if isinstance(x, Prefetch):
                lo = schedule.offset[x.stay.buffer]
                copies.append((i, clocks.now["in"]["compute"], lo, lo + x.stay.tensor.nbytes))
    found: set[int] = set()
    for i, x in enumerate(schedule.instructions):
        if not isinstance(x, Free):
            continue
        lo = schedule.offset[x.buffer]
        hi = lo + x.buffer.nbytes
        for _, op, start, end in copies[bisect(copies, (i,)) :]:
            if op > i:  # it comes after compute has filled the bytes, and so do all behind it
                found.add(i)
                break
            if start < hi and lo < end:
                break
        else:
            found.add(i)
    return found
