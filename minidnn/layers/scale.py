"""Scale: y = gamma * x + beta. gamma is learned, or is the second bottom; it spans some axes of x, by default the
channels.

gamma and beta are float32 in every net. A copy of 16 bits would save few bytes, and cost digits and an op in each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minidnn.layers.base import Layer, Parameter, Shape, Site, parametric_backward
from minidnn.layers.broadcast import BroadcastAttrs, spanned
from minidnn.program import Op, Pass, Tensor


class Scale(Layer):
    """Caffe's Scale. Nets use it after BatchNorm, which has no gamma and beta. For this case it has special kernels,
    which fuse with neighbouring ops. A gamma with other axes, or from a second bottom, uses the kernels for any factor.
    """

    type = "Scale"
    field_name = "scale_param"
    bottoms = (1, 2)
    in_place = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        spanned(self.param, bottoms)
        return [bottoms[0]]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        p, (_, shape) = self.param, spanned(self.param, bottoms)
        result = []
        if len(bottoms) == 1:
            result.append(Parameter("gamma", shape, p.filler, *self.mults(0), float32=True))
        if p.bias_term:
            mults = self.mults(len(result))
            result.append(Parameter("beta", shape, p.bias_filler, *mults, float32=True))
        return result

    def forward(self, s: Site) -> Iterable[Op]:
        (x, *factor), (y,) = s.x, s.y
        reads = [x, *factor, *s.p.values()]
        if attrs := self.attrs(s):
            yield s.op("broadcast.multiply", reads, [y], attrs, [(x, y)], x.size, name="forward", during=Pass.FORWARD)
        else:
            yield s.op("scale.forward", reads, [y, *self.copy(s)], inplace=[(x, y)], flops=x.size)

    def backward(self, s: Site) -> Iterable[Op]:
        attrs = self.attrs(s)
        if attrs is None:
            kept = next(iter(self.copy(s)), None)
            yield from parametric_backward(s, "scale", None, s.x[0].size, inplace=True, x=kept)
            return
        x, (dy,), dx = s.x[0], s.arriving, s.dx[0]
        factor, dfactor = (s.x[1], s.dx[1]) if len(s.x) > 1 else (s.p["gamma"], s.dp["gamma"])
        if dfactor is not None:
            yield s.op("broadcast.sum_products", [x, dy], [dfactor], attrs, flops=2 * x.size, **_of("filter"))
        if (dbeta := s.dp.get("beta")) is not None:
            yield s.op("broadcast.sum", [dy], [dbeta], attrs, flops=x.size, **_of("bias"))
        if dx is not None:
            yield s.op("broadcast.multiply", [dy, factor], [dx], attrs, [(dy, dx)], x.size, **_of("data"))

    def attrs(self, s: Site) -> BroadcastAttrs | None:
        """The factor's place; None for learned factors of the channels."""
        axis, shape = spanned(self.param, [x.shape for x in s.x])
        of_channels = len(s.x) == 1 and axis == 1 and len(shape) == 1
        return None if of_channels else BroadcastAttrs(axis)

    def copy(self, s: Site) -> list[Tensor]:
        """A copy of x, kept for backward so that forward can work in place, as in Caffe; empty by default."""
        return [s.extra("bottom", s.x[0].shape)] if s.facts.norm == "copy" and s.train else []


def _of(what):
    """The name of an op of backward, and its pass, where its kind does not tell them."""
    return {"name": f"backward_{what}", "during": Pass.BACKWARD}
