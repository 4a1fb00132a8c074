"""Flatten: joins several axes into one; the elements keep their order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from minidnn.layers.base import Shape, ShapeError, Site, positive_axis
from minidnn.layers.moving import Moving, in_order
from minidnn.program import Op


class Flatten(Moving):
    """Caffe's Flatten: joins the axes from `axis` to `end_axis` inclusive. Flatten is an op because it moves data on a
    device that does not store images as (N, C, H, W). Elsewhere both tensors may share memory."""

    type = "Flatten"
    field_name = "flatten_param"

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        shape = bottoms[0]
        first = positive_axis(self.param.axis, shape)
        last = positive_axis(self.param.end_axis, shape, "end_axis")
        if last < first:
            raise ShapeError(f"end_axis {self.param.end_axis} comes before axis {self.param.axis}")
        return [(*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        yield s.op("flatten.forward", [x], [y], inplace=in_order(x, y), flops=x.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (dy,), (dx,) = s.arriving, s.bottom_gradients
        yield s.op("flatten.backward", [dy], [dx], inplace=in_order(dy, dx), flops=dx.size)
