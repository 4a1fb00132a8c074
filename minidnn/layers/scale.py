"""Scale: y = gamma * x + beta, per channel.

gamma and beta are float32 in every net. A copy of 16 bits would save few bytes, and cost digits and an op in each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minidnn.layers.base import Layer, Parameter, Shape, ShapeError, Site, parametric_backward, text
from minidnn.program import Op, Tensor


class Scale(Layer):
    """Caffe's Scale with one bottom and axis 1. Nets put it after BatchNorm, which has no gamma and beta."""

    type = "Scale"
    field_name = "scale_param"
    in_place = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        if len(bottoms[0]) < 2:
            raise ShapeError(f"expected a bottom of 2 or more axes (N, C, ...), got {text(bottoms[0])}")
        return [bottoms[0]]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        p, c = self.param, bottoms[0][1]
        found = [Parameter("gamma", (c,), p.filler, *self.mults(0), float32=True)]
        if p.bias_term:
            found.append(Parameter("beta", (c,), p.bias_filler, *self.mults(1), float32=True))
        return found

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        yield s.op("scale.forward", [x, *s.p.values()], [y, *self.copy(s)], inplace=[(x, y)], flops=x.size)

    def backward(self, s: Site) -> Iterable[Op]:
        return parametric_backward(s, "scale", None, s.x[0].size, inplace=True, x=next(iter(self.copy(s)), None))

    def copy(self, s: Site) -> list[Tensor]:
        """A copy of x, kept for backward so that forward can work in place, as in Caffe; empty by default."""
        return [s.extra("bottom", s.x[0].shape)] if s.facts.norm == "copy" and s.train else []
