"""Eltwise: the sum, product or maximum of several bottoms, element by element."""

from __future__ import annotations

from dataclasses import dataclass

from minidnn.layers.base import Layer, ShapeError


@dataclass(frozen=True)
class EltwiseAttrs:
    operation: str
    coeff: tuple[float, ...]
    index: int | None = None  # backward: which bottom's gradient


class Eltwise(Layer):
    """Caffe's Eltwise. The gradient of a sum of coefficient 1 is dy itself: no op, no bytes."""

    type = "Eltwise"
    field_name = "eltwise_param"
    bottoms = (2, None)
    in_place = True

    @property
    def coeff(self):
        return self.param.coeff or (1.0,) * len(self.spec.bottom)

    def shapes(self, bottoms):
        for i, shape in enumerate(bottoms[1:], 1):
            if shape != bottoms[0]:
                raise ShapeError(f"bottom {i} has shape {shape}, bottom 0 has {bottoms[0]}: they must be equal")
        if len(self.coeff) != len(bottoms):
            raise ShapeError(f"{len(self.coeff)} coefficients for {len(bottoms)} bottoms")
        if self.param.coeff and self.param.operation != "SUM":
            raise ShapeError(f"coeff is for operation SUM, this is {self.param.operation}")
        return [bottoms[0]]

    def which(self, s):
        return s.extra("which", s.y[0].shape, "uint8")

    def forward(self, s):
        (y,) = s.y
        operation = self.param.operation
        keeps = [self.which(s)] if operation == "MAX" and s.train else []
        inplace = [(x, y) for x in dict.fromkeys(s.x)] if operation == "SUM" else []
        attrs = EltwiseAttrs(operation, self.coeff)
        yield s.op("eltwise.forward", s.x, [y, *keeps], attrs, inplace, flops=len(s.x) * y.size)

    def backward(self, s):
        (dy,) = s.dy
        operation = self.param.operation
        for i, dx in enumerate(s.dx):
            if dx is None:
                continue
            if operation == "SUM" and self.coeff[i] == 1:
                s.pass_through(i, dy)
                continue
            others = [x for k, x in enumerate(s.x) if k != i]
            reads = {"SUM": [], "PROD": others, "MAX": [self.which(s)] if operation == "MAX" else []}[operation]
            attrs = EltwiseAttrs(operation, self.coeff, i)
            yield s.op("eltwise.backward", [*reads, dy], [dx], attrs, flops=dx.size, name=f"backward_{i}")
