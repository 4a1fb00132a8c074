"""Debug mode fills freed bytes with NaN. This module says which bytes it may fill."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Sequence

from minidnn.memory.lowering.lower import Clocks
from minidnn.memory.schedule import Alloc, Compute, Free, Prefetch, Schedule, Stream, Wait

Written = tuple[int, int, int, int]  # an instruction's index, the last op before it, its bytes [lo, hi)


def fillable(schedule: Schedule) -> set[int]:
    """Indices of the Frees whose bytes no copy back and no communication may write before compute's next op.

    These wait for the former users of their bytes, not for the Free, which is no event. So one may run while compute
    fills them, unless it comes after a later op.
    """
    clocks = Clocks()
    others: dict[Stream, list[Written]] = defaultdict(list)  # by streams beside compute
    for i, x in enumerate(schedule.instructions):
        if isinstance(x, Wait):
            clocks.wait(x.stream, x.on)
        elif not isinstance(x, (Alloc, Free)):
            clocks.issue(i, x.stream)
            residencies = (x.residency,) if isinstance(x, Prefetch) else x.writes if isinstance(x, Compute) else ()
            for residency in residencies if x.stream != "compute" else ():
                lo = schedule.offset[residency.buffer]
                others[x.stream].append((i, clocks.now[x.stream]["compute"], lo, lo + residency.tensor.nbytes))
    result: set[int] = set()
    for i, x in enumerate(schedule.instructions):
        if isinstance(x, Free):
            lo = schedule.offset[x.buffer]
            if not any(_meets(some, i, lo, lo + x.buffer.nbytes) for some in others.values()):
                result.add(i)
    return result


def _meets(writes: Sequence[Written], free: int, lo: int, hi: int) -> bool:
    """Whether one of a stream's writes may touch bytes [lo, hi) while compute fills them at this Free."""
    for _, op, start, end in writes[bisect(writes, (free,)) :]:
        if op > free:  # it comes after compute has filled the bytes, and so do all behind it
            return False
        if start < hi and lo < end:
            return True
    return False
