"""Flatten: joins several axes into one; the elements keep their order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from minidnn.layers.base import Layer, Shape, ShapeError, Site, positive_axis
from minidnn.program import Op


class Flatten(Layer):
    """Caffe's Flatten: joins the axes from `axis` to `end_axis`, both included. It is an op, since it moves bytes on a
    device that stores images in another order than (N, C, H, W)."""

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
        yield s.op("flatten.forward", s.x, s.y, flops=s.x[0].size)

    def backward(self, s: Site) -> Iterable[Op]:
        yield s.op("flatten.backward", s.arriving, s.wanted, flops=s.x[0].size)
