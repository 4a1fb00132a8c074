"""Deconvolution: the transposed convolution, which spreads each pixel over a window: y[n, o] += w[c, o] * x[n, c].

It is a convolution from y to x, read backwards. So forward is that convolution's gradient by its data, and the gradient
by the data is that convolution. The filter's gradient is that convolution's, with x and dy exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from minidnn.layers.base import Parameter, Shape, ShapeError, Site, addressable, images, padded, text
from minidnn.layers.broadcast import BroadcastAttrs
from minidnn.layers.convolution import Convolution
from minidnn.program import Op, Pass, Role, Tensor


class Deconvolution(Convolution):
    """Caffe's Deconvolution: H' = s(H - 1) + d(k - 1) + 1 - 2p, weights (C, num_output/group, kh, kw). With group =
    num_output = C and the filler `bilinear` the layer enlarges images."""

    type = "Deconvolution"

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        n, c, *size = images(bottoms[0])
        a, out = self.attrs(), []
        if c % a.group:
            raise ShapeError(f"group {a.group} does not divide the {c} channels of its bottom {text(bottoms[0])}")
        for h, k, s, p, d in zip(size, a.kernel, a.stride, a.pad, a.dilation, strict=True):
            reach = s * (h - 1) + d * (k - 1) + 1
            if reach <= 2 * p:
                raise ShapeError(
                    f"pad {p} leaves nothing of the {reach} pixels over which {h} of its bottom {text(bottoms[0])} are "
                    f"spread; pad {(reach - 1) // 2} would leave some"
                )
            out.append(reach - 2 * p)
        top = (n, self.param.num_output, *out)
        addressable(padded(top, a.pad), "its padded top")
        return [top]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        p, channels = self.param, bottoms[0][1]
        weight, *_ = self.weight_and_bias((channels, p.num_output // p.group, *p.pair("kernel")))
        bias = Parameter("b", (p.num_output,), p.bias_filler, *self.mults(1))
        return [weight, bias] if p.bias_term else [weight]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,), (w, *b), during = s.x, s.y, s.p.values(), Pass.FORWARD
        spread = Tensor(f"{s.layer}.spread", y.shape, y.dtype, Role.ACTIVATION) if b else y
        attrs = self.attrs()
        yield s.op("convolution.backward_data", [w, x], [spread], attrs, flops=_flops(s), name="forward", during=during)
        if b:
            pair, axis = [(spread, y)], BroadcastAttrs(1)
            yield s.op("broadcast.add", [spread, *b], [y], axis, pair, y.size, name="bias", during=during)

    def backward(self, s: Site) -> Iterable[Op]:
        (x,), (dy,), (dx,), attrs, flops, during = s.x, s.arriving, s.dx, self.attrs(), _flops(s), Pass.BACKWARD
        if (dw := s.dp["w"]) is not None:
            yield s.op("convolution.backward_filter", [dy, x], [dw], attrs, flops=flops)
        if (db := s.dp.get("b")) is not None:
            yield s.op("convolution.backward_bias", [dy], [db], attrs, flops=dy.size)
        if dx is not None:
            reads, name = [dy, s.p["w"]], "backward_data"
            yield s.op("convolution.forward", reads, [dx], attrs, flops=flops, name=name, during=during)


def _flops(s):
    """Operations of forward, of the filter's gradient and of the data's, each: a multiplication and an addition for
    each pair of a weight and a position of x."""
    return 2 * s.x[0].size * math.prod(s.p["w"].shape[1:])
