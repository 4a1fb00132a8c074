"""A pool as a run-time allocator keeps it: buffers get their places one after another, and never move.

vDNN++ names fragmentation as vDNN's third bottleneck, and compares ways to allocate: first, best and worst fit, from
one end of the pool or from both, in several orders. A pool at run time sees requests in the order "start"; the other
orders need to know the whole step beforehand. From both ends, a buffer that lives from the forward pass into the
backward pass is put at the right end, any other at the left. So short-lived buffers leave no holes between long-lived
ones.

The pool's size is found as the authors find it: it begins at the live peak, and buffers are placed through one step. If
one finds no gap, the pool grows by the bytes that the largest gap lacks (at least half a per cent), and all begins
again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minidnn.costs import Heuristic
from minidnn.memory.packing.greedy import ORDERS, Placed
from minidnn.memory.packing.problem import Problem, Solution

# fit -> the index of the gap to use. `sizes` are the bytes of the gaps that are large enough, in order from the end of
# the pool at which the buffer is put.
FITS: dict[str, Callable[[np.ndarray], int]] = {
    "first": lambda sizes: 0,
    "best": lambda sizes: int(np.argmin(sizes)),
    "worst": lambda sizes: int(np.argmax(sizes)),
}
GRAIN = 200  # a pool grows by at least 1 / GRAIN of its first size


def pooled(problem: Problem, by: Heuristic, lasting: np.ndarray, enough: int = 0, grain: int = 1) -> Solution:
    """The places that the heuristic gives, in the smallest pool found.

    lasting: bool (buffers,), those that are put at the right end if there are two
    enough:  a pool of so many bytes is tried first, since a smaller one is no better
    grain:   bytes; the pool grows by a multiple of them
    """
    offset = _placed(problem, by, lasting, enough) if enough > problem.load else 0
    if isinstance(offset, int):
        _, offset = _grown(problem, by, lasting, grain)
    ends = "two_ended" if by.two_ended else "one_end"
    return Solution(offset, int((offset + problem.size).max(initial=0)), f"pool/{by.order}/{by.fit}_fit/{ends}")


def pool_size(problem: Problem, by: Heuristic, lasting: np.ndarray, grain: int = 1) -> int:
    """Bytes of the smallest pool found in which all buffers find a place."""
    return _grown(problem, by, lasting, grain)[0]


def _grown(problem: Problem, by: Heuristic, lasting: np.ndarray, grain: int) -> tuple[int, np.ndarray]:
    """The smallest pool found, in bytes, and the offsets in it."""
    pool = least = problem.load
    while isinstance(offset := _placed(problem, by, lasting, pool), int):
        pool += -(-max(offset, least // GRAIN) // grain) * grain
    return pool, offset


def _placed(problem: Problem, by: Heuristic, lasting: np.ndarray, pool: int) -> np.ndarray | int:
    """Offsets, int64 (buffers,); or the bytes by which the largest gap is too small for the first buffer that finds no
    place in a pool of `pool` bytes."""
    placed, fit = Placed(problem), FITS[by.fit]
    for b in np.lexsort(ORDERS[by.order](problem)).tolist():
        size = int(problem.size[b])
        offsets, starts = placed.beside(b)
        gaps = np.concatenate((offsets, [pool])) - starts
        fits = np.flatnonzero(gaps >= size)
        if not len(fits):
            return size - int(gaps.max())
        if by.two_ended and lasting[b]:
            gap = fits[::-1][fit(gaps[fits[::-1]])]
            at = int(starts[gap] + gaps[gap] - size)
        else:
            at = int(starts[fits[fit(gaps[fits])]])
        placed.add(b, at)
    return placed.where
