"""InnerProduct: y = w x + b over everything behind the batch axis, flattened in C, H, W order."""

from __future__ import annotations

from math import prod

from minidnn.layers.base import Layer, ShapeError, parametric_backward


class InnerProduct(Layer):
    """Caffe's InnerProduct; the weight tensor keeps the bottom's axes, its blob in files is (num_output, K)."""

    type = "InnerProduct"
    field_name = "inner_product_param"

    def shapes(self, bottoms):
        if len(bottoms[0]) < 2:
            raise ShapeError(f"InnerProduct takes a bottom of two axes or more, got {bottoms[0]}")
        return [(bottoms[0][0], self.param.num_output)]

    def parameters(self, bottoms):
        inner = bottoms[0][1:]
        return self.weight_and_bias((self.param.num_output, *inner), (self.param.num_output, prod(inner)))

    def forward(self, s):
        (x,), (y,) = s.x, s.y
        yield s.op("inner_product.forward", [x, *s.p.values()], [y], flops=self.flops(s))

    def backward(self, s):
        return parametric_backward(s, "inner_product", None, self.flops(s))

    def flops(self, s):
        return 2 * s.x[0].shape[0] * s.p["w"].size
