"""Permute: the same elements, with the axes in another order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Shape, ShapeError, Site, text
from minidnn.layers.moving import Moving
from minidnn.program import Op


@dataclass(frozen=True)
class PermuteAttrs:
    order: tuple[int, ...]  # per axis of y, the axis of x that it is


class Permute(Moving):
    """SSD's Permute: axis i of the top is axis order[i] of the bottom. Axes that `order` omits follow in order."""

    type = "Permute"
    field_name = "permute_param"

    def order(self, axes: int) -> tuple[int, ...]:
        given = self.param.order
        return (*given, *(i for i in range(axes) if i not in given))

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        (shape,), given = bottoms, list(self.param.order)
        for i, axis in enumerate(given):
            if axis >= len(shape):
                raise ShapeError(f"order {given}: axis {axis} does not exist in a bottom of shape {text(shape)}")
            if axis in given[:i]:
                raise ShapeError(f"order {given} has axis {axis} twice; each axis goes to one place")
        return [tuple(shape[i] for i in self.order(len(shape)))]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,) = s.x
        yield s.op("permute.forward", [x], s.y, PermuteAttrs(self.order(len(x.shape))), flops=x.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (dx,) = s.bottom_gradients
        order = self.order(len(dx.shape))
        back = tuple(order.index(i) for i in range(len(order)))
        yield s.op("permute.backward", s.arriving, [dx], PermuteAttrs(back), flops=dx.size)
