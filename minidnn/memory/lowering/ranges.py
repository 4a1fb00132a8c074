"""Ranges of bytes that do not overlap, each with a value."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Generic, TypeVar

T = TypeVar("T")


class Ranges(Generic[T]):
    """Ranges of bytes that do not overlap, each with a value."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ranges: list[tuple[int, int, T]] = []

    def over(self, lo: int, hi: int) -> slice:
        """The slice of `ranges` that overlap [lo, hi)."""
        i = bisect_right(self.starts, lo) - 1
        if i < 0 or self.ranges[i][1] <= lo:
            i += 1
        return slice(i, bisect_left(self.starts, hi))

    def put(self, lo: int, hi: int, what: T) -> None:
        """Set the value of [lo, hi). All other bytes keep their values."""
        where = self.over(lo, hi)
        old, new = self.ranges[where], [(lo, hi, what)]
        if old and old[0][0] < lo:
            new.insert(0, (old[0][0], lo, old[0][2]))
        if old and old[-1][1] > hi:
            new.append((hi, old[-1][1], old[-1][2]))
        self.ranges[where] = new
        self.starts[where] = [r[0] for r in new]
