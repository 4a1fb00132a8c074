"""InnerProduct: y = x w' + b; each output depends on all inputs of its sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from minidnn.layers.base import Layer, Parameter, Shape, ShapeError, Site, parametric_backward, text
from minidnn.program import Op


class InnerProduct(Layer):
    """Caffe's InnerProduct on all axes but the first.

    On images the weights have shape (O, C, H, W), so that a backend may give x and w the same layout. In files their
    shape is (O, C*H*W).
    """

    type = "InnerProduct"
    field_name = "inner_product_param"

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        if len(bottoms[0]) < 2:
            raise ShapeError(f"expected a bottom of 2 or more axes (N, ...), got {text(bottoms[0])}")
        return [(bottoms[0][0], self.param.num_output)]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        o, inner = self.param.num_output, bottoms[0][1:]
        blob = (o, math.prod(inner))
        return self.weight_and_bias((o, *inner) if len(inner) == 3 else blob, blob)

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        yield s.op("inner_product.forward", [x, *s.p.values()], [y], flops=_flops(s))

    def backward(self, s: Site) -> Iterable[Op]:
        return parametric_backward(s, "inner_product", None, _flops(s))


def _flops(s):
    return 2 * s.x[0].shape[0] * s.p["w"].size
