"""Convolution: y[n, o] = b[o] + the sum of w[o, c] * x[n, c] over the window and over the channels c of o's group."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import (
    Layer,
    Parameter,
    Shape,
    ShapeError,
    Site,
    addressable,
    images,
    padded,
    parametric_backward,
    text,
    windows,
)
from minidnn.program import Op


@dataclass(frozen=True)
class ConvolutionAttrs:
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    group: int = 1


class Convolution(Layer):
    """Caffe's Convolution: H' = floor((H + 2p - (d(k-1) + 1)) / s) + 1, weights (O, C/group, kh, kw)."""

    type = "Convolution"
    field_name = "convolution_param"
    needs = ("num_output",)

    def attrs(self) -> ConvolutionAttrs:
        p = self.param
        return ConvolutionAttrs(p.pair("kernel"), p.pair("stride"), p.pair("pad"), p.pair("dilation"), p.group)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        n, c, *_ = images(bottoms[0])
        a = self.attrs()
        if c % a.group:
            raise ShapeError(f"group {a.group} does not divide the {c} channels of its bottom {text(bottoms[0])}")
        out = windows(bottoms[0], a.kernel, a.stride, a.pad, a.dilation)
        addressable(padded(bottoms[0], a.pad), "its padded bottom")
        return [(n, self.param.num_output, *out)]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        p = self.param
        return self.weight_and_bias((p.num_output, bottoms[0][1] // p.group, *p.pair("kernel")))

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        yield s.op("convolution.forward", [x, *s.p.values()], [y], self.attrs(), flops=_flops(s))

    def backward(self, s: Site) -> Iterable[Op]:
        return parametric_backward(s, "convolution", self.attrs(), _flops(s))


def _flops(s):
    """Operations of forward, of backward_filter and of backward_data, each: a multiplication and an addition for each
    pair of a weight and an output position."""
    (y,) = s.y
    return 2 * y.size * math.prod(s.p["w"].shape[1:])
