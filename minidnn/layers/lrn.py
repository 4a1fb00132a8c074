"""Local response normalization: y = x * s^-beta, with s from the squares of x and its neighbours.

ACROSS_CHANNELS: s = k + alpha/n * (the sum of squares over the n channels around x). WITHIN_CHANNEL: s = 1 + alpha *
(the mean of squares over the n x n window around x). Places beyond the edge count as zeros, and are counted in n.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Layer, Shape, Site, addressable, images
from minidnn.layers.facts import Facts
from minidnn.program import Op


@dataclass(frozen=True)
class LRNAttrs:
    size: int
    alpha: float
    beta: float
    k: float = 1.0
    region: str = "ACROSS_CHANNELS"  # | "WITHIN_CHANNEL"
    saved: str = "x"  # what backward reads, apart from dy: "x" or "xy"


class LRN(Layer):
    """Caffe's LRN: n is `local_size`; WITHIN_CHANNEL ignores k."""

    type = "LRN"
    field_name = "lrn_param"

    def attrs(self, facts: Facts) -> LRNAttrs:
        p = self.param
        return LRNAttrs(p.local_size, p.alpha, p.beta, p.k, p.norm_region, facts.lrn)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        n, c, h, w = images(bottoms[0])
        size, across = self.param.local_size, self.param.norm_region == "ACROSS_CHANNELS"
        reach = (n, c + size - 1, h, w) if across else (n, c, h + size - 1, w + size - 1)
        addressable(reach, f"its bottom among the zeros that local_size {size} meets")
        return [bottoms[0]]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        yield s.op("lrn.forward", [x], [y], self.attrs(s.facts), flops=x.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (x,), (y,), (dy,), (dx,) = s.x, s.y, s.arriving, s.bottom_gradients
        attrs = self.attrs(s.facts)
        saved = {"x": [x], "xy": [x, y]}[attrs.saved]
        # Each dx needs the dy of several channels, so minidnn's kernels do not overwrite dy. Under a paper's facts an
        # op may overwrite it.
        inplace = [(dy, dx)] if s.facts.in_place else []
        yield s.op("lrn.backward", [*saved, dy], [dx], attrs, inplace, flops=x.size)
