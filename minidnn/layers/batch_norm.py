"""BatchNorm: (x - mean) / sqrt(variance + eps) per channel, with no affine part (that is Scale)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from minidnn.layers.base import Layer, Parameter, ShapeError
from minidnn.program import Phase


@dataclass(frozen=True)
class BatchNormAttrs:
    eps: float
    fraction: float  # moving_average_fraction
    count: int  # values per channel in a batch


class BatchNorm(Layer):
    """Caffe's BatchNorm: batch statistics in TRAIN, else running sums over their factor. The running sums are
    updated by an op of their own, which no recomputation repeats."""

    type = "BatchNorm"
    field_name = "batch_norm_param"
    in_place = True

    @property
    def global_stats(self):
        given = self.param.use_global_stats
        return self.phase == "TEST" if given is None else given

    def shapes(self, bottoms):
        if len(bottoms[0]) < 2:
            raise ShapeError(f"BatchNorm takes a bottom of two axes or more, got {bottoms[0]}")
        return [bottoms[0]]

    def parameters(self, bottoms):
        c = (bottoms[0][1],)
        shapes = {"mean_sum": c, "variance_sum": c, "factor": (1,)}
        return [Parameter(name, shape, None, 0.0, 0.0, learnable=False) for name, shape in shapes.items()]

    def attrs(self, x):
        count = x.shape[0] * prod(x.shape[2:])
        return BatchNormAttrs(self.param.eps, self.param.moving_average_fraction, count)

    def statistics(self, s):
        c = (s.x[0].shape[1],)
        return [s.extra("mean", c), s.extra("variance", c)]

    def forward(self, s):
        (x,), (y,), sums = s.x, s.y, list(s.p.values())
        a = self.attrs(x)
        if self.global_stats:
            yield s.op("batch_norm.inference", [x, *sums], [y], a, inplace=[(x, y)], flops=3 * x.size)
            return
        batch = self.statistics(s)
        yield s.op("batch_norm.forward", [x], [y, *batch], a, flops=7 * x.size)
        yield s.op("batch_norm.statistics", [*batch, *sums], sums, a)

    def backward(self, s):
        (x,), (dy,), (dx,) = s.x, s.dy, s.dx
        a = self.attrs(x)
        if self.global_stats:
            reads = [s.p["variance_sum"], s.p["factor"], dy]
            yield s.op(
                "batch_norm.inference_backward", reads, [dx], a, inplace=[(dy, dx)], flops=x.size, name="backward",
                phase=Phase.BACKWARD,
            )  # fmt: skip
            return
        reads = [x, *self.statistics(s), dy]
        yield s.op("batch_norm.backward", reads, [dx], a, inplace=[(dy, dx)], flops=11 * x.size)
