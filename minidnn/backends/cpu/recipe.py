"""A recipe is one way to compute an op: its workspace, and how to bind it to addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.workspace import Workspace
from minidnn.program import Algorithm

BLOCK = 1 << 16  # elements that NumPy kernels take at a time: a few such blocks stay in the second-level cache

Call = Callable[[], Any]  # a step that is bound to its addresses
Arrays = Sequence[np.ndarray]
Bind = Callable[[Arrays, Arrays, np.ndarray], list[Call]]  # reads, writes, workspace bytes -> the steps of the call


@dataclass(frozen=True, eq=False)
class Recipe:
    algorithm: Algorithm
    bind: Bind


class Scratch(Workspace):
    """A workspace that ends as a recipe's."""

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
