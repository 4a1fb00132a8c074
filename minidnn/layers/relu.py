"""ReLU: y = x where x > 0, slope * x elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Layer, Shape, Site
from minidnn.layers.facts import Facts
from minidnn.program import Op


@dataclass(frozen=True)
class ReLUAttrs:
    negative_slope: float = 0.0
    saved: str = "y"  # what backward reads, apart from dy: "y", "xy" or "mask"


class ReLU(Layer):
    """Caffe's ReLU. Backward reads y, so y may overwrite x. Only with a negative slope, where y loses the sign of x,
    does backward read both. If a Dropout overwrites y in place, backward reads the Dropout's top instead, as in Caffe:
    dropped values get no gradient anyway."""

    type = "ReLU"
    field_name = "relu_param"
    in_place = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        return [bottoms[0]]

    def attrs(self, facts: Facts) -> ReLUAttrs:
        return ReLUAttrs(self.param.negative_slope, facts.relu if self.param.negative_slope >= 0 else "xy")

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        attrs = self.attrs(s.facts)
        masks = [s.extra("mask", y.shape, "uint8")] if attrs.saved == "mask" and s.train else []
        yield s.op("relu.forward", [x], [y, *masks], attrs, inplace=[(x, y)], flops=x.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (x,), (dy,), (dx,) = s.x, s.arriving, s.bottom_gradients
        (y,) = s.y if s.facts.relu == "xy" else s.survivor
        attrs = self.attrs(s.facts)
        reads = {"y": [y], "xy": [x, y], "mask": [s.extra("mask", y.shape, "uint8")]}[attrs.saved]
        yield s.op("relu.backward", [*reads, dy], [dx], attrs, inplace=[(dy, dx)], flops=x.size)
