"""Reduction: each row becomes one number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Layer, Shape, Site, positive_axis
from minidnn.layers.reshaping import move, other
from minidnn.program import Op, Role, Tensor


@dataclass(frozen=True)
class ReductionAttrs:
    operation: str  # "SUM" | "ASUM" (of absolute values) | "SUMSQ" (of squares)
    coeff: float  # a factor of the result
    axis: int  # the first axis of a row, which goes to the last


class Reduction(Layer):
    """Caffe's Reduction: coeff times the sum of the elements along the axes from `axis` on, or of their absolute values
    or squares, or times their mean. With axis 0 the top has the shape (1,), like a loss; in Caffe it has no axis.
    """

    type = "Reduction"
    field_name = "reduction_param"

    def attrs(self, x: Tensor) -> ReductionAttrs:
        p, axis = self.param, positive_axis(self.param.axis, x.shape)
        if p.operation == "MEAN":
            return ReductionAttrs("SUM", p.coeff / math.prod(x.shape[axis:]), axis)
        return ReductionAttrs(p.operation, p.coeff, axis)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        return [bottoms[0][: positive_axis(self.param.axis, bottoms[0])] or (1,)]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        lying = self._per_row(s, y, "y.rows", Role.ACTIVATION)
        yield s.op("reduction.forward", [x], [lying], self.attrs(x), flops=2 * x.size)
        yield from move(s, lying, y)

    def backward(self, s: Site) -> Iterable[Op]:
        (x,), (given,), a = s.x, s.arriving, self.attrs(s.x[0])
        dy = self._per_row(s, given, "dy.rows", Role.GRADIENT)
        yield from move(s, given, dy, "backward")
        saved, pairs = ([], ()) if a.operation == "SUM" else ([x], [(x, t) for t in s.bottom_gradients])
        yield s.op("reduction.backward", [*saved, dy], s.bottom_gradients, a, pairs, 2 * x.size)

    def _per_row(self, s: Site, t: Tensor, name: str, role: Role) -> Tensor:
        """A tensor with a number per row, which lies as the rows do."""
        x = s.x[0].shape
        axis = positive_axis(self.param.axis, x)
        if len(t.shape) == 4 or (len(x) == 4 and axis == 3):
            return other(s, t, (*x[:axis], *[1] * (len(x) - axis)), name, role)
        return t
