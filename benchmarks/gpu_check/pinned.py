"""Page-locked memory that is given back is kept for the next net, which needs about as much.

A host takes it at 1 to 4 GB a second, and a policy that copies needs several GiB of it. A program that trains one net
takes them once; here dozens of nets are loaded one after another.

What the last net left there might hide that the next one reads what it has not written: the same policy may run twice
on the same batch. So memory that is handed out again is poisoned, up to a size that takes no time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

POISONED = 64 << 20  # the most bytes


class Pinned:
    """Stands before the page-locked memory of an api (backends/cuda/api.py), and keeps the largest idle block of it."""

    def __init__(self, api: Any) -> None:
        self._take, self._give = api.allocate_host, api.release_host
        self._idle: np.ndarray | None = None
        self._lent: dict[int, np.ndarray] = {}  # address -> the block of which some bytes are in use
        api.allocate_host, api.release_host = self.allocate, self.release

    def allocate(self, nbytes: int) -> np.ndarray:
        """Page-locked bytes, those of the idle block if it has enough. Raises OutOfMemory."""
        if self._idle is not None and self._idle.nbytes < nbytes:
            self.forget()
        if self._idle is None:
            block = self._take(nbytes)
        else:
            block = self._idle
            block[: min(nbytes, POISONED)].fill(0xFF)
        self._idle, self._lent[_address(block)] = None, block
        return block[:nbytes]

    def release(self, array: np.ndarray) -> None:
        """Keep the block of these bytes, or else the one that is idle, whichever is larger."""
        block = self._lent.pop(_address(array))
        if self._idle is not None:
            block, smaller = sorted((block, self._idle), key=lambda b: -b.nbytes)
            self._give(smaller)
        self._idle = block

    def forget(self) -> None:
        """Give the idle block back."""
        if self._idle is not None:
            self._give(self._idle)
            self._idle = None


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
