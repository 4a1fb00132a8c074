"""Convolution: y = w * x + b, cross-correlation over windows, in groups, dilated."""

from __future__ import annotations

from dataclasses import dataclass

from minidnn.layers.base import Layer, ShapeError, image, parametric_backward


@dataclass(frozen=True)
class ConvolutionAttrs:
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    dilation: tuple[int, int]
    group: int


class Convolution(Layer):
    """Caffe's Convolution: out = floor((H + 2p - (d(k-1)+1)) / s) + 1; weights (num_output, C/group, kh, kw)."""

    type = "Convolution"
    field_name = "convolution_param"

    @property
    def attrs(self):
        p = self.param
        return ConvolutionAttrs(p.pair("kernel"), p.pair("stride"), p.pair("pad"), p.pair("dilation"), p.group)

    def shapes(self, bottoms):
        n, c, *size = image(bottoms[0], self.type)
        a = self.attrs
        if c % a.group:
            raise ShapeError(f"{c} channels do not divide into {a.group} groups")
        out = []
        for side, length, k, s, p, d in zip("HW", size, a.kernel, a.stride, a.pad, a.dilation, strict=True):
            extent = d * (k - 1) + 1
            if length + 2 * p < extent:
                raise ShapeError(
                    f"a kernel that spans {extent} does not fit into {side} = {length} with pad {p}; "
                    f"a pad of {-(-(extent - length) // 2)} or more would do"
                )
            out.append((length + 2 * p - extent) // s + 1)
        return [(n, self.param.num_output, *out)]

    def parameters(self, bottoms):
        c = bottoms[0][1]
        shape = (self.param.num_output, c // self.param.group, *self.attrs.kernel)
        return self.weight_and_bias(shape)

    def forward(self, s):
        (x,), (y,) = s.x, s.y
        yield s.op("convolution.forward", [x, *s.p.values()], [y], self.attrs, flops=self.flops(s))

    def backward(self, s):
        return parametric_backward(s, "convolution", self.attrs, self.flops(s))

    def flops(self, s):
        """Two per multiply-add; the same in each of the three passes."""
        w = s.p["w"]
        return 2 * s.y[0].size * w.size // w.shape[0]
