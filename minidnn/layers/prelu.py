"""PReLU: a ReLU whose slopes below zero are learnt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minidnn.layers.base import Layer, Parameter, Shape, ShapeError, Site, text
from minidnn.program import Op


class PReLU(Layer):
    """y = x where x > 0, else slope x. Each channel has its own slope, or all share one (He et al., "Delving Deep into
    Rectifiers", ICCV 2015). A slope may have either sign, so backward reads x. The slopes are float32 in every net.
    """

    type = "PReLU"
    field_name = "prelu_param"
    in_place = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        if len(bottoms[0]) < 2:
            raise ShapeError(f"expected a bottom of 2 or more axes (N, C, ...), got {text(bottoms[0])}")
        return [bottoms[0]]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        shape = (1,) if self.param.channel_shared else (bottoms[0][1],)
        return [Parameter("slope", shape, self.param.filler, *self.mults(0), float32=True)]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        yield s.op("prelu.forward", [x, s.p["slope"]], [y], inplace=[(x, y)], flops=x.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (x,), (dy,), (dx,) = s.x, s.arriving, s.dx
        if (dslope := s.dp["slope"]) is not None:
            yield s.op("prelu.backward_filter", [x, dy], [dslope], flops=2 * x.size)
        if dx is not None:
            yield s.op("prelu.backward_data", [x, s.p["slope"], dy], [dx], inplace=[(dy, dx)], flops=x.size)
