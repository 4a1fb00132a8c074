"""Bytes that PyTorch's allocator has given out while a block of code runs, and the most at once.

    with followed() as memory:
        loss = step(x, y)
    memory.peak, memory.current

They are counted above those at the block's start, whoever asked for them: Python, an operator, oneDNN within it. A
block that gives back more than it takes has a negative `current`. NumPy's arrays and MKL's own buffers do not count.

On a CPU, C++ code stands before PyTorch's allocator (native/follow.cpp). It sees all threads, and `peak` and `current`
can be read at any time. A C++ compiler makes it once for each build of PyTorch, in about a second. Where there is none,
PyTorch's profiler records what is given out, in this thread: `peak` and `current` are known when the profiler's run has
ended; giving back what is older than the run counts nothing, and what other threads of an operator take is not seen. On
a GPU, the counters of PyTorch's caching allocator tell, in its own units of 512 bytes.
"""

from __future__ import annotations

import contextlib
import ctypes
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache
from itertools import accumulate
from typing import Any

from minidnn.compiled import NotCompiled
from minidnn.errors import InvalidInput
from minidnn.torch.experimental import profiler_runs, records_of
from minidnn.torch.native import sources

REFUSED = {
    1: "the allocator that PyTorch uses does not say how its blocks are freed",
    2: "PyTorch keeps an allocator that has precedence",
}
MARK = "minidnn section "


Bytes = tuple[int, int, int]  # current, peak, bound


class Followed:
    """The bytes of a block of code."""

    def __init__(self, now: Callable[[], Bytes]):
        self._now: Callable[[], Bytes] | None = now
        self._known = 0, 0, 0

    @property
    def current(self) -> int:
        """Given out since the start, less what was given back. It stays as it was at the block's end."""
        return self._read()[0]

    @property
    def peak(self) -> int:
        """The highest value of `current`; not less than 0."""
        return self._read()[1]

    @property
    def bound(self) -> int:
        """The sum of the highest values of each thread alone. Threads that work on one operator may take what they need
        at the same time or one after another: `peak` depends on that, this does not. Where only one thread is seen,
        it is `peak`."""
        return self._read()[2]

    def _read(self) -> Bytes:
        if self._now:
            self._known = self._now()
        return self._known

    def end(self) -> None:
        """Keep what is known now."""
        self._read()
        self._now = None


Section = Callable[[], AbstractContextManager[Followed]]


@contextlib.contextmanager
def followed(device: str = "cpu") -> Iterator[Followed]:
    """Follow the allocator of a device of PyTorch during a block of code."""
    with following(device) as section, section() as result:
        yield result


@contextlib.contextmanager
def following(device: str = "cpu") -> Iterator[Section]:
    """Follow several blocks of code, one after another: `with following() as section: with section() as memory: ...`.
    Where the profiler does it, `memory` is known when the outer block has ended, and all have one run of it.

    Raises InvalidInput where the profiler would have to, and runs already."""
    if device.partition(":")[0] != "cpu":
        yield lambda: _counted(device)
    elif why := without_hook():
        with _profiled(why) as section:
            yield section
    else:
        yield _hooked


# ---- by C++ code before the allocator


@cache
def without_hook() -> str:
    """Why the C++ code does not follow the allocator; empty if it does, from the first call on."""
    try:
        result = _library().follow_install()
    except NotCompiled as error:
        return str(error)
    return REFUSED[result] if result else ""


@cache
def _library() -> ctypes.CDLL:
    """Raises NotCompiled."""
    result = sources().load()
    number, place = ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)
    result.follow_begin.restype = number
    result.follow_end.argtypes = [number]
    result.follow_read.argtypes = [number, place, place, place]
    return result


@contextlib.contextmanager
def _hooked() -> Iterator[Followed]:
    library, current, peak, bound = _library(), ctypes.c_int64(), ctypes.c_int64(), ctypes.c_int64()
    number = library.follow_begin()

    def now() -> Bytes:
        library.follow_read(number, current, peak, bound)
        return current.value, peak.value, bound.value

    result = Followed(now)
    try:
        yield result
    finally:
        result.end()
        library.follow_end(number)


# ---- by the profiler


@contextlib.contextmanager
def _profiled(why: str) -> Iterator[Section]:
    from torch.profiler import ProfilerActivity, profile, record_function

    if profiler_runs():
        raise InvalidInput(
            f"PyTorch's profiler runs already, and bytes are counted by it where a C++ compiler is not ({why}): "
            "count them outside of it"
        )
    results: list[Followed] = []

    @contextlib.contextmanager
    def section() -> Iterator[Followed]:
        result = Followed(_not_yet)
        results.append(result)
        with record_function(f"{MARK}{len(results) - 1}"):
            yield result

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        yield section
    records = _sections(records_of(profiler))
    for k, result in enumerate(results):
        result._now = lambda k=k: records[k]  # type: ignore[misc]
        result.end()


def _not_yet() -> Bytes:
    raise InvalidInput(f"bytes that the profiler counts are known when its run has ended ({without_hook()})")


def _sections(events: Any) -> list[Bytes]:
    """Of each section in a run of the profiler."""
    marks = {int(e.name()[len(MARK) :]): e for e in events if e.name().startswith(MARK)}
    memory = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    times = [time for time, _ in memory]
    result = []
    for k in range(len(marks)):
        begin, end = marks[k].start_ns(), marks[k].start_ns() + marks[k].duration_ns()
        within = memory[bisect_left(times, begin) : bisect_right(times, end)]
        sums = list(accumulate((change for _, change in within), initial=0))
        result.append((sums[-1], max(sums), max(sums)))
    return result


# ---- by the caching allocator of a GPU

_open: list[Followed] = []  # blocks on GPUs that have not ended


@contextlib.contextmanager
def _counted(device: str) -> Iterator[Followed]:
    import torch

    cuda, most = torch.cuda, 0
    cuda.init()

    def stat(which: str) -> int:
        return int(cuda.memory_stats(device).get(f"allocated_bytes.all.{which}", 0))

    def now() -> Bytes:
        nonlocal most
        most = max(most, stat("peak") - start)
        return stat("current") - start, most, most

    for other in _open:
        other._read()  # its peak so far, which is reset now
    cuda.reset_peak_memory_stats(device)
    start = stat("current")
    result = Followed(now)
    _open.append(result)
    try:
        yield result
    finally:
        result.end()
        _open.remove(result)
