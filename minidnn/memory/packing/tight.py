"""The search for a packing within a capacity, in C (native/tight.c)."""

from __future__ import annotations

import ctypes

import numpy as np

from minidnn.compiled import NotCompiled
from minidnn.memory.packing.native import SOURCES
from minidnn.memory.packing.problem import Problem

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


def tight(problem: Problem, capacity: int, steps: int) -> np.ndarray | None:
    """Offsets within the capacity, int64 (buffers,); None if `steps` steps found none.

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
    result = library.tight(
        ctypes.c_int64(count), ctypes.c_int64(len(times) - 1), *map(_address, arrays),
        ctypes.c_int64(capacity), ctypes.c_int64(steps), _address(where),
    )  # fmt: skip
    if result == IMPOSSIBLE:
        raise Impossible
    if result == NO_MEMORY:
        raise MemoryError(f"packing {count} buffers")
    offset[alive] = where
    return offset if result == FOUND else None


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
