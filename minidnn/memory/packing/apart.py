"""Small buffers apart: they lie in a strip of their own above the others, whose packing is then easier to find.

A small buffer between large ones puts them out of line: a few bytes more, and no multiple of the large sizes fits.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from minidnn.memory.packing.greedy import solutions
from minidnn.memory.packing.problem import Problem
from minidnn.memory.packing.tight import Work, tight

SMALL = 256  # small buffers have less than this part of the capacity
ORDERS = 3  # greedy orders that are tried for them


def small_apart(problem: Problem, capacity: int, steps: int, work: Work | None = None) -> np.ndarray | None:
    """Offsets within the capacity, int64 (buffers,), of the large buffers by the search; None if it finds none.

    Raises what `tight` does. Impossible is then said of the large buffers below the strip.
    """
    small = problem.size < capacity // SMALL
    if not small.any() or small.all():
        return None
    strip = min(islice(solutions(problem.part(small)), ORDERS), key=lambda solution: solution.height)
    large = problem.part(~small)
    result = tight(large, capacity - strip.height, steps, work)
    if result is None:
        return None
    offset = np.zeros(len(problem), np.int64)
    offset[~small], offset[small] = result, int(np.max(result + large.size)) + strip.offset
    return offset
