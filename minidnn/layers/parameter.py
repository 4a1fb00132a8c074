"""Parameter: a learnable blob as a top, for layers that take it as a bottom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minidnn.layers.base import Layer, Parameter, Shape, ShapeError, Site
from minidnn.program import Op, Pass


class ParameterLayer(Layer):
    """Caffe's Parameter: the top is a learnable blob. It starts at 0, because the layer has no filler."""

    type = "Parameter"
    field_name = "parameter_param"
    bottoms = (0, 0)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        if not self.param.shape.dim:
            raise ShapeError("expected a parameter_param.shape with dims, got one without")
        return [tuple(self.param.shape.dim)]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        (shape,) = self.shapes(bottoms)
        return [Parameter("blob", shape, None, *self.mults(0))]

    def forward(self, s: Site) -> Iterable[Op]:
        (y,), blob = s.y, s.p["blob"]
        yield s.op("identity.forward", [blob], [y], flops=y.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (dy,), dw = s.arriving, s.dp["blob"]
        if dw is not None:
            yield s.op("identity.forward", [dy], [dw], None, [(dy, dw)], dy.size, "backward", Pass.BACKWARD)
