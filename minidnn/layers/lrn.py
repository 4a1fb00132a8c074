"""LRN: local response normalisation, across channels or within one."""

from __future__ import annotations

from dataclasses import dataclass

from minidnn.layers.base import Layer, image


@dataclass(frozen=True)
class LRNAttrs:
    size: int
    alpha: float
    beta: float
    k: float
    region: str
    saved: str = "x"  # what backward reads beside dy: "x" or "xy"


class LRN(Layer):
    """Caffe's LRN: y = x (k + alpha/n sum x^2)^-beta; within a channel the window is n x n and k is 1."""

    type = "LRN"
    field_name = "lrn_param"

    def shapes(self, bottoms):
        return [image(bottoms[0], self.type)]

    def attrs(self, facts):
        p = self.param
        return LRNAttrs(p.local_size, p.alpha, p.beta, p.k, p.norm_region, facts.lrn)

    def forward(self, s):
        (x,), (y,) = s.x, s.y
        yield s.op("lrn.forward", [x], [y], self.attrs(s.facts), flops=2 * x.size * self.param.local_size)

    def backward(self, s):
        (x,), (y,), (dy,), (dx,) = s.x, s.y, s.dy, s.dx
        a = self.attrs(s.facts)
        reads = [x, y, dy] if a.saved == "xy" else [x, dy]
        yield s.op("lrn.backward", reads, [dx], a, flops=4 * x.size * a.size)
