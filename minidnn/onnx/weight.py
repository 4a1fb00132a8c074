"""The numbers that a node reads from a file: a parameter, which is trained, or a constant, which is not.

A parameter may reach a node turned: PyTorch's exporters transpose the weight of a Linear. Such a view keeps what was
done to it. So two layers share a parameter only if it lies in both in one order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from minidnn.layers.base import Shape


@dataclass(frozen=True)
class Rows:
    """Another order of rows: which row comes at each place."""

    places: tuple[int, ...]


Turn = tuple[Shape, "tuple[int, ...] | Rows"]


@dataclass(frozen=True, eq=False)
class Weight:
    """The numbers of a value.

    name:    of the parameter, or of the constant
    trained: whether it is a parameter
    turns:   what led from the parameter to these numbers: transpositions, and other orders of rows (pieces.py); each
             with the shape that it turned
    """

    numbers: np.ndarray
    name: str
    trained: bool
    turns: tuple[Turn, ...] = ()

    @property
    def shape(self) -> Shape:
        return tuple(self.numbers.shape)

    @property
    def size(self) -> int:
        return int(self.numbers.size)

    def reshaped(self, shape: Sequence[int]) -> Weight:
        """The same elements in the same order."""
        return replace(self, numbers=self.numbers.reshape(tuple(shape)))

    def transposed(self, order: Sequence[int]) -> Weight:
        """With its axes in this order."""
        order = tuple(order)
        numbers = self.numbers.transpose(order)
        long = [a for a in order if self.shape[a] != 1]
        if long == sorted(long):  # no element moves
            return replace(self, numbers=numbers)
        before, turned = self.turns[-1] if self.turns else ((), ())
        if (
            isinstance(turned, tuple)
            and turned
            and self.shape == tuple(before[a] for a in turned)
            and [turned[a] for a in order] == sorted(order)
        ):
            return replace(self, numbers=numbers, turns=self.turns[:-1])
        return replace(self, numbers=numbers, turns=(*self.turns, (self.shape, order)))

    def root(self) -> Weight:
        """The parameter as it was before it was turned, with one axis if it was."""
        if not self.turns:
            return self
        flat = np.empty(self.size, self.numbers.dtype)
        flat[self._order()] = self.numbers.reshape(-1)
        return replace(self, numbers=flat.reshape(self.turns[0][0]), turns=())

    def lies_as(self, other: Weight) -> bool:
        """Whether the elements of both come in one order."""
        if self.turns == other.turns:
            return True
        return self.size == other.size and bool(np.array_equal(self._order(), other._order()))

    def _order(self) -> np.ndarray:
        """The place in the parameter of each element, one after another."""
        result = np.arange(self.size)
        for shape, order in self.turns:
            before = result.reshape(shape)
            after = before[list(order.places)] if isinstance(order, Rows) else before.transpose(order)
            result = after.reshape(-1)
        return result


def constant(numbers: np.ndarray, name: str = "") -> Weight:
    """Numbers that are not trained."""
    return Weight(np.asarray(numbers), name, False)


def count(shape: Sequence[int]) -> int:
    """The number of elements."""
    return math.prod(int(n) for n in shape)
