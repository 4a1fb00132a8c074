"""Placement gives each buffer a fixed offset in one arena. Buffers that live at the same time must not overlap.

    height
      |    +-------+                The arena's height is at least the live peak, the largest sum of bytes
      |    |   C   |  +-----+       alive at once. Finding the lowest height is NP-hard (dynamic storage
      | +--+-------+--+  D  |       allocation). So a portfolio of greedy orders is tried and the best kept.
      | |       A     |     |       The search stops as soon as one reaches the live peak.
      | +-------------+-----+
      +-----------------------> points

Buffers that live for the whole step overlap all others in time. They are stacked at the bottom first, which costs
nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from minidnn.memory.schedule import (
    Buffer,
    Listing,
    Offload,
    Prefetch,
    Schedule,
    Stash,
    aligned,
    live_peak,
    room,
    stored_bound,
)
from minidnn.program import Program, Tensor

# Orders other than by start look at every buffer already placed, which takes quadratic time. In NumPy that is some
# 20 µs a buffer at 16,000 buffers, less than the linear terms. Still, with more buffers than this, only the order by
# size is tried of them: it wins on deep nets.
OFFLINE_LIMIT = 4000

Offsets = dict[Buffer, int]


def _area(b: Buffer) -> int:
    """Bytes times points."""
    return b.nbytes * (b.hi - b.lo)


# {name: sort key}: buffers with the least key are placed first.
ORDERS: dict[str, Callable[[Buffer], tuple]] = {
    "size": lambda b: (-b.nbytes, b.lo),
    "area": lambda b: (-_area(b), b.lo),
    "start": lambda b: (b.lo, -b.nbytes),
    "width": lambda b: (b.lo - b.hi, -b.nbytes),
    "size_width": lambda b: (-b.nbytes * (b.hi - b.lo) ** 0.5, b.lo),
}


def offline(buffers: Sequence[Buffer], order: str, best_fit: bool) -> tuple[Offsets, int]:
    """(offsets, height): place in this order, in the lowest gap that fits (first fit) or the tightest (best fit)."""
    n = len(buffers)
    lo, hi, off, top = (np.zeros(n, np.int64) for _ in range(4))  # of the placed buffers, sorted by offset
    where: Offsets = {}
    height = 0
    for count, b in enumerate(sorted(buffers, key=ORDERS[order])):
        size = aligned(b.nbytes)
        alive = np.flatnonzero((lo[:count] < b.hi) & (hi[:count] > b.lo))
        starts = off[alive]
        ends = np.maximum.accumulate(top[alive]) if len(alive) else top[:0]
        below = np.concatenate(([0], ends))  # candidate offsets: 0, and the end of each neighbour
        gaps = starts - below[:-1]
        fits = np.flatnonzero(gaps >= size)
        if not len(fits):
            at = int(below[-1])
        elif best_fit:
            at = int(below[fits[np.argmin(gaps[fits])]])
        else:
            at = int(below[fits[0]])
        where[b] = at
        i = int(np.searchsorted(off[:count], at))
        for array, value in ((lo, b.lo), (hi, b.hi), (off, at), (top, at + size)):
            array[i + 1 : count + 1] = array[i:count]
            array[i] = value
        height = max(height, at + size)
    return where, height


def online(buffers: Sequence[Buffer], best_fit: bool) -> tuple[Offsets, int]:
    """(offsets, height): allocate and free in order of time, as a run-time pool would, from a list of free blocks."""
    where: Offsets = {}
    height = 0
    free: list[list[int]] = []  # [offset, size], sorted by offset; no two touch
    ending: dict[int, list[Buffer]] = {}
    for b in buffers:
        ending.setdefault(b.hi, []).append(b)
    ends = sorted(ending)
    done = 0
    for b in sorted(buffers, key=ORDERS["start"]):
        while done < len(ends) and ends[done] <= b.lo:
            for dead in ending[ends[done]]:
                if dead in where:
                    _release(free, where[dead], aligned(dead.nbytes))
            done += 1
        size = aligned(b.nbytes)
        fitting = (i for i, block in enumerate(free) if block[1] >= size)
        i = min(fitting, key=lambda i: free[i][1], default=None) if best_fit else next(fitting, None)
        if i is not None:
            where[b] = free[i][0]
            free[i][0] += size
            free[i][1] -= size
            if not free[i][1]:
                del free[i]
            continue
        at = height
        if free and free[-1][0] + free[-1][1] == height:  # grow the last free block
            at = free.pop()[0]
        where[b] = at
        height = at + size
    return where, height


def _release(free: list[list[int]], at: int, size: int) -> None:
    """Return a block to the list of free blocks, joined with its neighbours."""
    i = bisect_left(free, [at, 0])
    if i < len(free) and at + size == free[i][0]:
        size += free.pop(i)[1]
    if i and free[i - 1][0] + free[i - 1][1] == at:
        free[i - 1][1] += size
    else:
        insort(free, [at, size])


def pack(buffers: Sequence[Buffer], bound: int) -> tuple[Offsets, int, str]:
    """(offsets, height, heuristic's name): the best of the portfolio. Stops at a height of `bound` bytes or less."""
    best: tuple[Offsets, int, str] | None = None
    candidates: list[tuple[str, Callable[[], tuple[Offsets, int]]]] = [
        ("start/best_fit", lambda: online(buffers, True)),
        ("start/first_fit", lambda: online(buffers, False)),
    ]
    for order in ORDERS:
        for best_fit in (False, True):
            if order != "start" and (len(buffers) <= OFFLINE_LIMIT or (order, best_fit) == ("size", False)):
                name = f"{order}/{'best' if best_fit else 'first'}_fit"
                candidates.append((name, lambda o=order, f=best_fit: offline(buffers, o, f)))  # type: ignore[misc]
    for name, attempt in candidates:
        where, height = attempt()
        if best is None or height < best[1]:
            best = (where, height, name)
        if best[1] <= bound:
            break
    assert best is not None
    return best


def homes(*programs: Program) -> tuple[dict[Tensor, int], int]:
    """Offsets of carried tensors, the same in every program of a net, and the bytes that they take together."""
    where: dict[Tensor, int] = {}
    top = 0
    for t, size in {t: room(program, t) for program in programs for t in program.carried}.items():
        where[t] = top
        top += aligned(size)
    return where, top


def place(
    listing: Listing, fixed: Mapping[Tensor, int] | None = None, base: int | None = None, enough: int = 0
) -> Schedule:
    """The listing as a schedule: every buffer with its offset, every travelling tensor with its place on the host.

    fixed, base: homes of carried tensors and the bytes below which they lie (see `homes`): a net's programs share them
    enough:      bytes; an arena of this size is as good as the lowest, for callers that only check a budget
    """
    program, plan = listing.program, listing.plan
    if fixed is None or base is None:
        fixed, base = homes(program)
    end = len(plan.order)
    offset: Offsets = {}
    rest: list[Buffer] = []
    for b in listing.buffers:
        if b.home:
            offset[b] = fixed[b.stays[0].tensor]
        elif b.lo == 0 and b.hi == end:
            offset[b], base = base, base + aligned(b.nbytes)
        else:
            rest.append(b)
    arena, how = base, "stack"
    if rest:
        bound, _ = live_peak(rest, end, lambda b: aligned(b.nbytes))
        where, height, how = pack(rest, max(bound, enough - base))
        for b, at in where.items():
            offset[b] = base + at
        arena = base + height
    peak, point = live_peak(listing.buffers, end, lambda b: b.nbytes)
    host_offset, host_bytes = _host(listing)
    store_offset, store_bytes = _store(listing)
    return Schedule(
        program, plan, listing.instructions, listing.buffers, listing.points, listing.ring, listing.staging,
        offset, arena, how, host_offset, host_bytes, store_offset, store_bytes, peak, point,
    )  # fmt: skip


def _host(listing: Listing) -> tuple[dict[Tensor, int], int]:
    """Offsets on the host and their bytes: a pinned place for each travelling tensor, two for each input.

    Tensors that pass through the ring get none. No place is used again within a step.
    """
    where: dict[Tensor, int] = {}
    top = 0
    inputs = set(listing.program.inputs)
    ringed = {x.stay.tensor for x in listing.instructions if isinstance(x, (Offload, Prefetch)) and x.leg is not None}
    for t in dict.fromkeys((*listing.program.inputs, *(trip.tensor for trip in listing.plan.trips))):
        if t not in ringed:
            where[t] = top
            top += aligned(t.nbytes) * (2 if t in inputs else 1)
    return where, top


def _store(listing: Listing) -> tuple[dict[Tensor, int], int]:
    """Offsets in the store and their bytes: for each stashed tensor the most bytes that it can take."""
    where: dict[Tensor, int] = {}
    top = 0
    for x in listing.instructions:
        if isinstance(x, Stash) and x.leg.tensor not in where:
            assert listing.staging is not None
            where[x.leg.tensor] = top
            top += aligned(stored_bound(x.leg.tensor, listing.staging.compress))
    return where, top
