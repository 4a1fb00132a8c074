"""Im2col: the windows of a convolution as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Layer, Shape, Site, addressable, images, padded, windows
from minidnn.program import Op


@dataclass(frozen=True)
class Im2colAttrs:
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    dilation: tuple[int, int]


class Im2col(Layer):
    """Caffe's Im2col. Channel c * kh * kw + i * kw + j of the top holds element (i, j) of each window of channel c.
    Padding is 0. The gradient of an element is the sum over the windows that contain it."""

    type = "Im2col"
    field_name = "convolution_param"

    def attrs(self) -> Im2colAttrs:
        p = self.param
        return Im2colAttrs(p.pair("kernel"), p.pair("stride"), p.pair("pad"), p.pair("dilation"))

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        n, c, *_ = images(bottoms[0])
        a = self.attrs()
        addressable(padded(bottoms[0], a.pad), "its padded bottom")
        return [(n, c * a.kernel[0] * a.kernel[1], *windows(bottoms[0], a.kernel, a.stride, a.pad, a.dilation))]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        yield s.op("im2col.forward", [x], [y], self.attrs(), flops=y.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (dy,), (dx,) = s.arriving, s.bottom_gradients
        yield s.op("im2col.backward", [dy], [dx], self.attrs(), flops=dy.size)
