"""A tensor's values, a few rows at a time: so weights are drawn, loaded and saved without a second copy of them all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

PIECE = 2**20  # bytes that a piece has at most, unless one row alone has more


@dataclass(frozen=True)
class Rows:
    """Values by rows, along the first axis.

    pieces: gives the values anew at each call, as arrays of consecutive rows, C-contiguous, from the first row on
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    pieces: Callable[[], Iterable[np.ndarray]]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.whole().astype(dtype or self.dtype, copy=False)

    def whole(self) -> np.ndarray:
        """All values as one new array."""
        whole = np.empty(self.shape, self.dtype)
        flat, at = whole.reshape(-1), 0
        for piece in self.pieces():
            flat[at : at + piece.size] = piece.reshape(-1)
            at += piece.size
        return whole


def of(values: np.ndarray | Rows) -> Rows:
    """The rows of an array."""
    if isinstance(values, Rows):
        return values
    array = np.asarray(values)

    def pieces() -> Iterator[np.ndarray]:
        several = array if array.shape else array.reshape(1)
        for first, last in split(array.shape, array.itemsize):
            yield np.ascontiguousarray(several[first:last])

    return Rows(array.shape, array.dtype, pieces)


def equal(a: Rows, b: Rows) -> bool:
    """Whether these, of one shape, hold the same numbers."""
    if a.dtype != b.dtype:  # their pieces are not the same rows
        return np.array_equal(a.whole(), b.whole())
    return all(np.array_equal(x, y) for x, y in zip(a.pieces(), b.pieces(), strict=True))


def full(shape: tuple[int, ...], value: float, dtype: np.dtype) -> Rows:
    """Rows in which each element has this value."""
    parts = [(last - first, *shape[1:]) for first, last in split(shape, dtype.itemsize)]
    return Rows(shape, dtype, lambda: (np.full(part, value, dtype) for part in parts))


def split(shape: Sequence[int], itemsize: int) -> Iterator[tuple[int, int]]:
    """(first, last): the rows of each piece of a tensor of this shape, last excluded. No axes: one row."""
    rows, row = (shape[0], math.prod(shape[1:]) * itemsize) if shape else (1, itemsize)
    step = max(PIECE // row, 1) if row else max(rows, 1)
    for first in range(0, rows, step):
        yield first, min(first + step, rows)
