"""Concat: bottoms side by side along one axis."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from minidnn.layers.base import Layer, ShapeError, axis_of


@dataclass(frozen=True)
class ConcatAttrs:
    axis: int


@dataclass(frozen=True)
class ConcatGradientAttrs:
    axis: int
    starts: tuple[int, ...]  # where each written gradient begins along the axis


class Concat(Layer):
    type = "Concat"
    field_name = "concat_param"
    bottoms = (1, None)

    def shapes(self, bottoms):
        axis = axis_of(self.param.axis, bottoms[0])
        first = bottoms[0]
        for i, shape in enumerate(bottoms[1:], 1):
            if len(shape) != len(first) or any(
                a != b for k, (a, b) in enumerate(zip(shape, first, strict=True)) if k != axis
            ):
                raise ShapeError(f"bottom {i} has shape {shape}, which differs from {first} beyond axis {axis}")
        return [(*first[:axis], sum(s[axis] for s in bottoms), *first[axis + 1 :])]

    def forward(self, s):
        axis = axis_of(self.param.axis, s.x[0].shape)
        yield s.op("concat.forward", s.x, s.y, ConcatAttrs(axis), flops=s.y[0].size)

    def backward(self, s):
        axis = axis_of(self.param.axis, s.x[0].shape)
        starts = accumulate((x.shape[axis] for x in s.x), initial=0)
        wanted = [(dx, start) for dx, start in zip(s.dx, starts, strict=False) if dx is not None]
        attrs = ConcatGradientAttrs(axis, tuple(start for _, start in wanted))
        yield s.op("concat.backward", s.dy, [dx for dx, _ in wanted], attrs, flops=sum(dx.size for dx, _ in wanted))
