"""Keeps the state before a step on the disk, since the disk may fail in the middle of the step.

The bytes lie behind the stashed tensors, in the same file. They pass through the ring, which is idle between steps, so
that they take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from minidnn.memory.execution.disk import DiskFile
from minidnn.memory.schedule import BLOCK, aligned
from minidnn.program import Tensor

NAME = "what a failed step goes back to"  # in the disk's messages
Move = Callable[[Tensor, slice, np.ndarray], object]


class Undo:
    """Keeps the bytes of `tensors`, in their order, in the file from offset `at` on.

    ring: bytes of the host through which they pass, from a page's start
    """

    def __init__(self, disk: DiskFile, at: int, ring: np.ndarray, tensors: Sequence[Tensor]) -> None:
        self._disk, self._at, self._tensors = disk, at, tensors
        self._ring = ring[: len(ring) // BLOCK * BLOCK]

    def write(self, read: Move) -> None:
        """Write them to the disk. `read(t, part, bytes)` copies a part of a tensor to `bytes`. Raises DiskFailed."""
        for at, nbytes, moves in self._pieces():
            for t, part, bytes in moves:
                read(t, part, bytes)
            self._disk.write(self._ring[: aligned(nbytes, BLOCK)], at, NAME)

    def read(self, write: Move) -> None:
        """Read them from the disk. `write(t, part, bytes)` copies `bytes` to a part of a tensor. Raises DiskFailed."""
        for at, nbytes, moves in self._pieces():
            self._disk.read(self._ring[: aligned(nbytes, BLOCK)], at, NAME)
            for t, part, bytes in moves:
                write(t, part, bytes)

    def _pieces(self) -> Iterator[tuple[int, int, list[tuple[Tensor, slice, np.ndarray]]]]:
        """(offset on the disk, bytes, name) of each filling of the ring."""
        at, used, moves = self._at, 0, []
        for t in self._tensors:
            first = 0
            while first < t.nbytes:
                n = min(t.nbytes - first, len(self._ring) - used)
                moves.append((t, slice(first, first + n), self._ring[used : used + n]))
                first, used = first + n, used + n
                if used == len(self._ring):
                    yield at, used, moves
                    at, used, moves = at + used, 0, []
        if used:
            yield at, used, moves
