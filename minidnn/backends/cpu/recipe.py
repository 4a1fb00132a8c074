"""A recipe is one way to compute an op: an algorithm's name and workspace, and how to bind it to addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.workspace import Workspace
from minidnn.program import Algorithm

BLOCK = 1 << 16  # elements that a NumPy kernel takes at a time: a few such blocks fit the second-level cache

Call = Callable[[], Any]  # a step, bound to its addresses
Arrays = Sequence[np.ndarray]
Bind = Callable[[Arrays, Arrays, np.ndarray], list[Call]]  # reads, writes, workspace bytes -> the steps of the call


@dataclass(frozen=True, eq=False)
class Recipe:
    algorithm: Algorithm
    bind: Bind


class Scratch(Workspace):
    """The workspace of a recipe that is being made."""

    def recipe(self, name: str, bind: Bind) -> Recipe:
        """The recipe of that name, with the workspace taken so far."""
        return Recipe(Algorithm(name, self.nbytes), bind)


def plain(bind: Bind, name: str = "default") -> Recipe:
    """A recipe without a workspace."""
    return Recipe(Algorithm(name, 0), bind)


def blocks(*arrays: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    """1-D arrays of equal length, cut into blocks of at most BLOCK elements: for each block, its part of each array."""
    size = arrays[0].size
    return [tuple(a[i : i + BLOCK] for a in arrays) for i in range(0, size, BLOCK)]


def copied(source: np.ndarray, target: np.ndarray) -> list[Call]:
    """The steps that copy source to target; none if both are the same bytes."""
    return [] if address(source) == address(target) else [partial(np.copyto, flat(target), flat(source))]


def chained(steps: Sequence[Call]) -> Call:
    """One call of all steps, in their order."""
    if len(steps) == 1:
        return steps[0]
    every = tuple(steps)

    def call() -> None:
        for step in every:
            step()

    return call
