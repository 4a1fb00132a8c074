"""Bias: y = x + beta. beta is learned, or is the second bottom; it spans some axes of x, by default the channels. A
learned beta is float32 in every net, as Scale's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minidnn.layers.base import Layer, Parameter, Shape, Site
from minidnn.layers.broadcast import BroadcastAttrs, spanned
from minidnn.program import Op, Pass


class Bias(Layer):
    """Caffe's Bias. The gradient of x is dy itself: no op, no copy."""

    type = "Bias"
    field_name = "bias_param"
    bottoms = (1, 2)
    in_place = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        spanned(self.param, bottoms)
        return [bottoms[0]]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        if len(bottoms) > 1:
            return []
        shape = spanned(self.param, bottoms)[1]
        return [Parameter("beta", shape, self.param.filler, *self.mults(0), float32=True)]

    def forward(self, s: Site) -> Iterable[Op]:
        (x, *constant), (y,), attrs = s.x, s.y, BroadcastAttrs(self.place(s)[0])
        reads = [x, *constant, *s.p.values()]
        yield s.op("broadcast.add", reads, [y], attrs, [(x, y)], x.size, name="forward", during=Pass.FORWARD)

    def backward(self, s: Site) -> Iterable[Op]:
        (dy,), (axis, shape) = s.arriving, self.place(s)
        gradient = s.dx[1] if len(s.x) > 1 else s.dp["beta"]
        if gradient is not None and axis == 1 and len(shape) == 1:
            yield s.op("scale.backward_bias", [dy], [gradient], flops=dy.size)
        elif gradient is not None:
            attrs, during = BroadcastAttrs(axis), Pass.BACKWARD
            yield s.op("broadcast.sum", [dy], [gradient], attrs, flops=dy.size, name="backward_bias", during=during)
        if s.dx[0] is not None:
            s.pass_through(0, dy)

    def place(self, s: Site) -> tuple[int, Shape]:
        """The constant's first axis and its shape."""
        return spanned(self.param, [x.shape for x in s.x])
