"""OpenMP's threads and fork(). A child has the thread that forked, and none of the others.

GNU's OpenMP does not notice: the child's first parallel region waits for the threads for ever. So these threads end
before a fork, by omp_pause_resource_all. Parent and child then each start their own at their next region. That costs a
fork some time, and a step nothing.
"""

from __future__ import annotations

import ctypes
import os
from functools import partial

from minidnn.errors import Failed

HARD = 2  # omp_pause_hard: the threads end
_known: set[int] = set()  # the addresses of the functions that a fork calls; 0: of a library that has none
_lost = False  # whether this process was forked and waits for ever in a parallel region


class Forked(Failed, RuntimeError):
    """This process is a child whose OpenMP has lost its threads."""


def end_threads_before(library: ctypes.CDLL) -> None:
    """From now on, end the threads of the OpenMP that this library is linked to before each fork. A library without
    OpenMP is left alone."""
    omp = ctypes.PyDLL(library._name, handle=library._handle)
    if not hasattr(omp, "omp_get_max_threads"):
        return
    pause = getattr(omp, "omp_pause_resource_all", None)  # OpenMP 5.0: GNU's has it since GCC 9
    address = ctypes.cast(pause, ctypes.c_void_p).value or 0 if pause else 0
    if address in _known:
        return
    _known.add(address)
    if pause:
        os.register_at_fork(before=partial(pause, ctypes.c_int(HARD)))
    else:
        os.register_at_fork(after_in_child=_lose)


def check() -> None:
    """Raise Forked if a parallel region would wait for ever."""
    if _lost:
        raise Forked(
            "this process was forked from one in which the cpu device was open, and its OpenMP (older than GCC 9) has "
            "no threads here: start processes with multiprocessing's method 'spawn', or import minidnn in the child"
        )


def _lose() -> None:
    global _lost
    _lost = True
