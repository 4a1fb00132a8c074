"""Flatten: several axes become one, in logical order."""

from __future__ import annotations

from math import prod

from minidnn.layers.base import Layer, ShapeError, axis_of


class Flatten(Layer):
    type = "Flatten"
    field_name = "flatten_param"

    def shapes(self, bottoms):
        (shape,) = bottoms
        first, last = axis_of(self.param.axis, shape), axis_of(self.param.end_axis, shape)
        if first > last:
            raise ShapeError(f"axis {self.param.axis} comes after end_axis {self.param.end_axis} in {shape}")
        return [(*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])]

    def forward(self, s):
        yield s.op("flatten.forward", s.x, s.y)

    def backward(self, s):
        yield s.op("flatten.backward", s.dy, s.dx)
