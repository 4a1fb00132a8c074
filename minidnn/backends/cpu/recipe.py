"""A recipe is one way to compute an op: its workspace, and how to bind it to addresses.

Measuring and binding read the same `Scratch`, so that the workspace a plan reserves and the one a kernel uses
cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from minidnn.backends.cpu.layout import address, flat
from minidnn.program import Algorithm

ALIGNMENT = 256
BLOCK = 1 << 16  # elements that NumPy kernels take at a time: a few such blocks stay in the second-level cache

Call = Callable[[], Any]  # a step that is bound to its addresses
Arrays = Sequence[np.ndarray]
Bind = Callable[[Arrays, Arrays, np.ndarray], list[Call]]  # reads, writes, workspace bytes -> the steps of the call


@dataclass(frozen=True, eq=False)
class Recipe:
    algorithm: Algorithm
    bind: Bind


@dataclass(frozen=True)
class Piece:
    """A range of the workspace."""

    offset: int
    nbytes: int

    def array(self, workspace: np.ndarray, dtype: str = "float32") -> np.ndarray:
        return workspace[self.offset : self.offset + self.nbytes].view(dtype)

    def address(self, workspace: np.ndarray) -> int:
        return workspace.__array_interface__["data"][0] + self.offset if self.nbytes else 0


class Scratch:
    """Adds up the pieces of a workspace. A piece's contents do not outlive the call."""

    def __init__(self) -> None:
        self.nbytes = 0

    def take(self, nbytes: int) -> Piece:
        piece = Piece(self.nbytes, nbytes)
        self.nbytes += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return piece

    def recipe(self, name: str, bind: Bind) -> Recipe:
        return Recipe(Algorithm(name, self.nbytes), bind)


def plain(bind: Bind, name: str = "default") -> Recipe:
    """A recipe without a workspace."""
    return Recipe(Algorithm(name, 0), bind)


def blocks(*arrays: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    """Corresponding blocks of runs of equal length."""
    size = arrays[0].size
    return [tuple(a[i : i + BLOCK] for a in arrays) for i in range(0, size, BLOCK)]


def copied(source: np.ndarray, target: np.ndarray) -> list[Call]:
    """target = source; nothing to do where they are the same bytes."""
    return [] if address(source) == address(target) else [partial(np.copyto, flat(target), flat(source))]
