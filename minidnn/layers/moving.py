"""Layers that move elements and change none: their tops have the dtype of their bottom."""

from __future__ import annotations

from collections.abc import Sequence

from minidnn.layers.base import Layer
from minidnn.program import Tensor


class Moving(Layer):
    """A layer that moves the elements of its first bottom. They may be labels."""

    moves = True

    def dtypes(self, bottoms: Sequence[str]) -> list[str]:
        return [bottoms[0]] * len(self.spec.top)


def in_order(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The pair (x, y) of tensors that hold the same elements in logical order, if they may share bytes.

    Devices store images in an order of their own, and all other tensors in logical order."""
    return [(x, y)] if x.shape == y.shape or 4 not in (len(x.shape), len(y.shape)) else []
