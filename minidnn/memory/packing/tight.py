"""The search for a packing within a capacity, in C (native/tight.c)."""

from __future__ import annotations

import ctypes

import numpy as np

from minidnn.compiled import NotCompiled
from minidnn.memory.packing.native import SOURCES
from minidnn.memory.packing.problem import Problem

ENDLESS = 2**63 - 1
IMPOSSIBLE, FOUND, GAVE_UP, NO_MEMORY = range(4)  # of native/tight.c


class Impossible(Exception):
    """No packing within the capacity exists: the search has looked everywhere."""


def missing() -> str | None:
    """Why the search cannot be had here, in a line; None if it can."""
    try:
        SOURCES.load()
    except NotCompiled as reason:
        return str(reason)
    return None


class Work:
    """Buffers and sections of time that searches may still look at. Their seconds are in proportion to it, where those
    of steps differ from problem to problem."""

    def __init__(self, most: int) -> None:
        self.left = ctypes.c_int64(most)

    def part(self, most: int) -> Work:
        """So much of it, or what is left, taken away."""
        most = max(0, min(most, self.left.value))
        self.left.value -= most
        return Work(most)

    def back(self, part: Work) -> None:
        """Have what is left of a part."""
        self.left.value += max(0, part.left.value)


def tight(problem: Problem, capacity: int, steps: int, work: Work | None = None) -> np.ndarray | None:
    """Offsets within the capacity, int64 (buffers,); None if `steps` steps, or so much work, found none.

    A step places one buffer. Equal problems have equal answers, on any machine.

    Raises Impossible, NotCompiled without a C compiler, and MemoryError.
    """
    library = SOURCES.load()
    offset = np.zeros(len(problem), np.int64)
    alive = problem.lo < problem.hi  # a plan that contradicts itself may have others
    count = int(alive.sum())
    if not count:
        return offset
    lo, hi, size = (a[alive] for a in (problem.lo, problem.hi, problem.size))
    times, places = np.unique(np.concatenate((lo, hi)), return_inverse=True)
    first, end = np.split(places.astype(np.int64), 2)
    arrays = (first, end, hi - lo, size)  # they must outlive the call
    where = np.zeros(count, np.int64)
    work = Work(ENDLESS) if work is None else work
    result = library.tight(
        ctypes.c_int64(count), ctypes.c_int64(len(times) - 1), *map(_address, arrays),
        ctypes.c_int64(capacity), ctypes.c_int64(steps), ctypes.byref(work.left), _address(where),
    )  # fmt: skip
    if result == IMPOSSIBLE:
        raise Impossible
    if result == NO_MEMORY:
        raise MemoryError(f"packing {count} buffers")
    offset[alive] = where
    return offset if result == FOUND else None


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
