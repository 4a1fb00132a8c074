"""Greedy packing: buffers are placed one after another, each in the first gap that fits or in the tightest."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

import numpy as np

from minidnn.memory.packing.problem import Problem, Solution

# Orders other than by start look at every buffer already placed, which takes quadratic time. In NumPy that is some
# 20 µs a buffer at 16,000 buffers, less than the linear terms. Still, with more buffers than this, only the order by
# size is tried of them: it wins on deep nets.
OFFLINE_LIMIT = 4000

# {name: keys of np.lexsort, the last counts most}: buffers with the least keys are placed first.
ORDERS: dict[str, Callable[[Problem], tuple[np.ndarray, ...]]] = {
    "size": lambda p: (p.lo, -p.size),
    "area": lambda p: (p.lo, -p.size * (p.hi - p.lo)),
    "start": lambda p: (-p.size, p.lo),
    "width": lambda p: (-p.size, p.lo - p.hi),
    "size_width": lambda p: (p.lo, -p.size * (p.hi - p.lo) ** 0.5),
}


def solutions(problem: Problem) -> Iterator[Solution]:
    """The solutions of the portfolio, the quickest to find first."""
    for best_fit in (True, False):
        yield _solution(problem, online(problem, best_fit), "start", best_fit)
    for order in ORDERS:
        for best_fit in (False, True):
            if order != "start" and (len(problem) <= OFFLINE_LIMIT or (order, best_fit) == ("size", False)):
                yield _solution(problem, offline(problem, order, best_fit), order, best_fit)


def _solution(problem: Problem, offset: np.ndarray, order: str, best_fit: bool) -> Solution:
    height = int((offset + problem.size).max(initial=0))
    return Solution(offset, height, f"{order}/{'best' if best_fit else 'first'}_fit")


def offline(problem: Problem, order: str, best_fit: bool) -> np.ndarray:
    """Offsets, int64 (buffers,): buffers are placed in this order, whatever their times."""
    n = len(problem)
    lo, hi, off, top = (np.zeros(n, np.int64) for _ in range(4))  # of the placed buffers, sorted by offset
    where = np.zeros(n, np.int64)
    for count, b in enumerate(np.lexsort(ORDERS[order](problem)).tolist()):
        first, end, size = int(problem.lo[b]), int(problem.hi[b]), int(problem.size[b])
        alive = np.flatnonzero((lo[:count] < end) & (hi[:count] > first))
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
        for array, value in ((lo, first), (hi, end), (off, at), (top, at + size)):
            array[i + 1 : count + 1] = array[i:count]
            array[i] = value
    return where


def online(problem: Problem, best_fit: bool) -> np.ndarray:
    """Offsets, int64 (buffers,): buffers are placed and freed in order of time, as a run-time pool would do it, with a
    list of free blocks."""
    lo, hi, sizes = problem.lo.tolist(), problem.hi.tolist(), problem.size.tolist()
    where = [-1] * len(problem)
    height = 0
    free: list[list[int]] = []  # [offset, size], sorted by offset; no two touch
    ending = sorted(range(len(problem)), key=hi.__getitem__)
    done = 0
    for b in np.lexsort(ORDERS["start"](problem)).tolist():
        while done < len(ending) and hi[ending[done]] <= lo[b]:
            if where[ending[done]] >= 0:  # else it is never alive
                _release(free, where[ending[done]], sizes[ending[done]])
            done += 1
        size = sizes[b]
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
    return np.array(where, np.int64)


def _release(free: list[list[int]], at: int, size: int) -> None:
    """Return a block to the list of free blocks, joined with its neighbours."""
    i = bisect_left(free, [at, 0])
    if i < len(free) and at + size == free[i][0]:
        size += free.pop(i)[1]
    if i and free[i - 1][0] + free[i - 1][1] == at:
        free[i - 1][1] += size
    else:
        insort(free, [at, size])
