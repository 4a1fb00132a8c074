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


class Placed:
    """The buffers of a problem that have a place."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.count = problem, 0
        self.where = np.zeros(len(problem), np.int64)  # offsets, by buffer
        self._sorted = np.zeros((4, len(problem)), np.int64)  # lo, hi, offset and end of each, by offset

    def beside(self, buffer: int) -> tuple[np.ndarray, np.ndarray]:
        """The offsets of those that are alive with the buffer, and the ends of what lies below each gap between them:
        0, and then the highest end so far."""
        lo, hi, offset, end = self._sorted[:, : self.count]
        alive = np.flatnonzero((lo < self.problem.hi[buffer]) & (hi > self.problem.lo[buffer]))
        return offset[alive], np.concatenate(([0], np.maximum.accumulate(end[alive])))

    def add(self, buffer: int, at: int) -> None:
        """Give the buffer its place."""
        problem, row, count = self.problem, self._sorted, self.count
        self.where[buffer] = at
        i = int(np.searchsorted(row[2, :count], at))
        row[:, i + 1 : count + 1] = row[:, i:count]
        row[:, i] = problem.lo[buffer], problem.hi[buffer], at, at + problem.size[buffer]
        self.count += 1


def offline(problem: Problem, order: str, best_fit: bool) -> np.ndarray:
    """Offsets, int64 (buffers,): buffers are placed in this order, whatever their times."""
    placed = Placed(problem)
    for b in np.lexsort(ORDERS[order](problem)).tolist():
        starts, below = placed.beside(b)  # candidate offsets: 0, and the end of each neighbour
        gaps = starts - below[:-1]
        fits = np.flatnonzero(gaps >= problem.size[b])
        if not len(fits):
            at = int(below[-1])
        elif best_fit:
            at = int(below[fits[np.argmin(gaps[fits])]])
        else:
            at = int(below[fits[0]])
        placed.add(b, at)
    return placed.where


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
