"""How kernels that work row by row (kernels/rows.cuh) divide rows among threads: by the shape alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minidnn.backends.cuda.columns import power_of_two
from minidnn.backends.cuda.recipe import BLOCK, int32
from minidnn.backends.rows import Rows, rows

AT_ONCE = 1 << 16  # threads that keep a GPU busy


@dataclass(frozen=True)
class Shared:
    """Rows in the order of memory: `count` rows of `length` values that are `inner` elements apart."""

    count: int
    inner: int
    length: int
    lanes: int  # threads that share a row

    @property
    def arguments(self) -> tuple[np.generic, ...]:
        """The parameters ROWS of kernels/rows.cuh."""
        return np.int64(self.count), np.int64(self.inner), int32(self.length), int32(self.lanes)

    def grid(self, most: int) -> int:
        return max(1, min(most, -(-self.count // (BLOCK // self.lanes))))


def shared(shape: tuple[int, ...], first: int, last: int) -> Shared:
    """The division of the rows along the axes first <= axis < last."""
    return divided(rows(shape, first, last))


def divided(rows: Rows) -> Shared:
    length, inner, count = rows.length, rows.inner, rows.count
    if inner == 1:
        lanes = min(BLOCK, power_of_two(-(-length // 4)))
    else:  # a block reads 32 or more rows side by side; several threads share a row only if there are few rows
        lanes = min(8, power_of_two(length), max(1, AT_ONCE // power_of_two(count)))
    return Shared(count, inner, length, lanes)
