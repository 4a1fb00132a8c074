"""A packing problem and its solution, as plain arrays and as CSV files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from minidnn.errors import BadInput
from minidnn.files import regular
from minidnn.files.replace import replacing

COLUMNS = ("id", "lower", "upper", "size")  # of MiniMalloc's files (Moffitt, "MiniMalloc", ASPLOS 2023)
OFFSET = "offset"
MOST = 1 << 40  # of times, and of all sizes together


class ProblemError(BadInput, ValueError):
    """A file is no packing problem. The message names the file, its line and what would do."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Buffers that must not overlap: buffer i has size[i] bytes over the half-open interval [lo[i], hi[i]) of time.

    lo, hi, size: int64 (buffers,); lo < hi and size > 0
    names:        for people; empty: the buffers' numbers
    """

    lo: np.ndarray
    hi: np.ndarray
    size: np.ndarray
    names: Sequence[str] = field(default=())

    def __len__(self) -> int:
        return len(self.size)

    def part(self, which: np.ndarray) -> Problem:
        """The problem of some of the buffers, without names. which: bool (buffers,)"""
        return Problem(self.lo[which], self.hi[which], self.size[which])

    @cached_property
    def load(self) -> int:
        """The largest sum of sizes alive at once; no solution is lower."""
        times = np.concatenate((self.hi, self.lo))
        change = np.concatenate((-self.size, self.size))
        order = np.lexsort((change, times))  # at one time, ends come before starts
        return int(np.cumsum(change[order]).max(initial=0))


@dataclass(frozen=True, eq=False)
class Solution:
    """offset: int64 (buffers,); height: the largest offset + size; how: what found it."""

    offset: np.ndarray
    height: int
    how: str

    def overlap(self, problem: Problem) -> tuple[int, int] | None:
        """Two buffers that overlap in time and in space; None: there are none, and the solution is right."""
        top = self.offset + problem.size
        for i in range(len(problem)):
            wrong = (problem.lo < problem.hi[i]) & (problem.lo[i] < problem.hi)
            wrong &= (self.offset < top[i]) & (self.offset[i] < top)
            wrong[i] = False
            if wrong.any():
                return i, int(np.argmax(wrong))
        return None


def read(path: Path) -> Problem:
    """The problem of a CSV file: a first line with the columns id, lower, upper and size, then a line per buffer. Other
    columns are ignored. Raises ProblemError, and OSError."""
    names: list[str] = []
    rows: list[tuple[int, int, int]] = []
    with open(path, encoding="utf-8", newline="", opener=regular.handle) as file:
        lines = csv.DictReader(file)
        try:
            missing = [c for c in COLUMNS if c not in (lines.fieldnames or ())]
            if missing:
                raise ProblemError(f"{path}:1: no column {', '.join(missing)}; the first line must name {_columns()}")
            for row in lines:
                names.append(row["id"] or "")
                rows.append(_row(path, lines.line_num, row))
        except (csv.Error, UnicodeDecodeError) as error:
            raise ProblemError(f"{path}:{lines.line_num + 1}: no CSV text: {error}") from None
    lo, hi, size = np.array(rows, np.int64).reshape(-1, 3).T
    if sum(size.tolist()) > MOST:
        raise ProblemError(f"{path}: all sizes together are {sum(size.tolist())}, and {MOST} is the most")
    return Problem(lo, hi, size, names)


def _row(path: Path, line: int, row: dict[str, str]) -> tuple[int, int, int]:
    numbers = []
    for column in COLUMNS[1:]:
        text = (row[column] or "").strip()
        if not (text.isascii() and text.isdigit()) or int(text) > MOST:
            raise ProblemError(f"{path}:{line}: {column} is {text!r}: it must be a whole number from 0 to {MOST}")
        numbers.append(int(text))
    lo, hi, size = numbers
    if lo >= hi or not size:
        raise ProblemError(f"{path}:{line}: {row['id']!r} is alive over [{lo}, {hi}) with {size} bytes: it needs both")
    return lo, hi, size


def write(path: Path, problem: Problem, solution: Solution) -> None:
    """Write the problem with its solution: the columns of `read`, and each buffer's offset."""
    names = problem.names or [str(i) for i in range(len(problem))]
    columns = (names, problem.lo.tolist(), problem.hi.tolist(), problem.size.tolist(), solution.offset.tolist())
    with replacing(path) as file:
        to = csv.writer(file, lineterminator="\n")
        to.writerow((*COLUMNS, OFFSET))
        to.writerows(zip(*columns, strict=True))


def _columns() -> str:
    return f"{', '.join(COLUMNS[:-1])} and {COLUMNS[-1]}"
