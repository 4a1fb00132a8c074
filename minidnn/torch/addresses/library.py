"""The C code (addresses.c) by Python's hand."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import CFUNCTYPE, POINTER, c_int, c_long, c_size_t, c_ssize_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from minidnn.compiled import Sources, portable

SOURCES = Sources(
    Path(__file__).parent,
    "the allocator of planned addresses, once: a second",
    portable("-O2", "-fPIC"),
    lambda: ("x86-64",),
)
TAKE, GIVE = CFUNCTYPE(c_int, POINTER(c_void_p), c_size_t), CFUNCTYPE(c_int, c_void_p)
NOWHERE = c_size_t(-1).value
FINE, OTHER_SIZE, TOO_MANY, TOO_FEW, IN_USE, NO_MEMORY, OTHER_STREAM = range(7)
TYPES: dict[str, tuple[Any, list[Any]]] = {
    "mdn_setup": (None, [c_void_p, c_void_p]),
    "mdn_alloc": (c_void_p, [c_ssize_t, c_int, c_void_p]),
    "mdn_free": (None, [c_void_p, c_ssize_t, c_int, c_void_p]),
    "mdn_record_stream": (None, [c_void_p, c_void_p]),
    "mdn_drop_kept": (None, []),
    "mdn_bytes": (None, [POINTER(c_size_t), c_int]),
    "mdn_forget": (None, []),
    "mdn_reserve": (c_int, [c_int, c_size_t]),
    "mdn_plan": (c_void_p, [c_long, POINTER(c_size_t), POINTER(c_size_t)]),
    "mdn_drop_plan": (None, [c_void_p]),
    "mdn_record": (None, []),
    "mdn_number": (c_long, [c_void_p]),
    "mdn_recorded": (c_long, [POINTER(c_void_p)]),
    "mdn_enter": (c_int, [c_int, c_void_p, c_void_p, c_long, c_long]),
    "mdn_note": (None, [c_long]),
    "mdn_leave": (c_int, [POINTER(c_long), c_int]),
}


class Event(NamedTuple):
    """A request, or its end, while a step is recorded."""

    ends: bool
    number: int  # of the request
    size: int
    instruction: int  # of the schedule; -1: none yet


class Bytes(NamedTuple):
    """Bytes that the driver has given, and those of them in use; now and at most."""

    reserved: int
    peak_reserved: int
    in_use: int
    peak_in_use: int


class Left(NamedTuple):
    """How a half of a step ended."""

    status: int
    wrong: int  # the request that was not as planned
    got: int  # its bytes
    requests: int  # so far


class Library:
    """The functions, with the state behind them, of which a process has one."""

    def __init__(self, native: ctypes.CDLL) -> None:
        self.native = native
        for name, (result, arguments) in TYPES.items():
            function = getattr(native, name)
            function.restype, function.argtypes = result, arguments
        self.alloc, self.free, self.note = native.mdn_alloc, native.mdn_free, native.mdn_note
        self.drop_kept, self.forget, self.record, self.number = (
            native.mdn_drop_kept,
            native.mdn_forget,
            native.mdn_record,
            native.mdn_number,
        )
        self.record_stream, self.reserve, self.drop_plan = (
            native.mdn_record_stream, native.mdn_reserve, native.mdn_drop_plan
        )  # fmt: skip

    def address(self, name: str) -> int:
        """The address of one of the functions."""
        result = ctypes.cast(getattr(self.native, name), c_void_p).value
        assert result is not None
        return result

    def setup(self, take: Any, give: Any) -> None:
        """Name the driver's functions that give memory and take it back."""
        self._driver = take, give
        self.native.mdn_setup(ctypes.cast(take, c_void_p), ctypes.cast(give, c_void_p))

    def bytes(self, reset: bool = False) -> Bytes:
        """reset: the highest values begin anew."""
        to = (c_size_t * 4)()
        self.native.mdn_bytes(to, reset)
        return Bytes(*to)

    def plan(self, sizes: Sequence[int], places: Sequence[int]) -> int:
        """A plan of requests. places: offsets in the arena, or NOWHERE"""
        kind = c_size_t * len(sizes)
        result = self.native.mdn_plan(len(sizes), kind(*sizes), kind(*places))
        if not result:
            raise MemoryError
        return int(result)

    def recorded(self) -> list[Event]:
        """The events of the recording, which ends."""
        at = c_void_p()
        count = self.native.mdn_recorded(ctypes.byref(at))
        rows = ctypes.cast(at, POINTER(c_long * 4))
        return [Event(bool(rows[i][0]), *rows[i][1:]) for i in range(count)]

    def enter(self, device: int, stream: int, plan: int | None, first: int = 0, end: int = 0) -> int:
        return int(self.native.mdn_enter(device, stream, plan, first, end))

    def leave(self, complete: bool) -> Left:
        """complete: whether all of the half's requests must have come"""
        to = (c_long * 3)()
        return Left(self.native.mdn_leave(to, complete), *to)


@cache
def library() -> Library:
    """Raises NotCompiled."""
    return Library(SOURCES.load())
