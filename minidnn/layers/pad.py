"""Pad: zeros around its bottom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from minidnn.layers.base import Layer, Shape, ShapeError, Site, addressable, positive_axis, text
from minidnn.layers.crop import CropAttrs
from minidnn.program import Op, Pass


class Pad(Layer):
    """Ours: from `axis` on, the i-th axis gets `before[i]` zeros before its elements and `after[i]` after them. A list
    with one number applies to all of these axes. The ops are those of Crop, in the opposite direction."""

    type = "Pad"
    field_name = "pad_param"

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        (shape,) = bottoms
        before, after = around(self.param, shape)
        top = tuple(n + b + a for n, b, a in zip(shape, before, after, strict=True))
        return [addressable(top, "its top")]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        attrs = CropAttrs(around(self.param, x.shape)[0])
        yield s.op("crop.backward", [x], [y], attrs, flops=y.size, name="forward", during=Pass.FORWARD)

    def backward(self, s: Site) -> Iterable[Op]:
        (dx,) = s.bottom_gradients
        attrs = CropAttrs(around(self.param, dx.shape)[0])
        yield s.op("crop.forward", s.arriving, [dx], attrs, flops=dx.size, name="backward", during=Pass.BACKWARD)


def around(param: Any, shape: Shape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(zeros before, zeros behind) of each axis of a bottom. Raises ShapeError."""
    axis = positive_axis(param.axis, shape)
    return _numbers(param, "before", axis, shape), _numbers(param, "after", axis, shape)


def _numbers(param: Any, field: str, axis: int, shape: Shape) -> tuple[int, ...]:
    given, count = getattr(param, field), len(shape) - axis
    if len(given) not in (0, 1, count):
        raise ShapeError(
            f"{field}: expected one number, or {count}, one for each axis from {axis} on of the bottom "
            f"{text(shape)}; got {len(given)}"
        )
    return (*[0] * axis, *(given if len(given) == count else (given or (0,)) * count))
