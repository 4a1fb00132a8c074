"""BatchNorm: y = (x - mean) / sqrt(variance + eps), per channel; a Scale layer does gamma and beta.

TRAIN normalizes by the batch's own mean and (biased) variance. A separate op, which recomputation never repeats, adds
these to running sums. TEST normalizes by sum / factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Layer, Parameter, Shape, ShapeError, Site, text
from minidnn.program import Op, Pass, Tensor

SUMS = ("mean_sum", "variance_sum", "factor")


@dataclass(frozen=True)
class BatchNormAttrs:
    eps: float
    fraction: float  # the running sums are multiplied by this before a batch is added
    count: int  # values per channel in a batch: N*H*W


class BatchNorm(Layer):
    """Caffe's BatchNorm. With `use_global_stats: false`, Caffe updates the running sums even in TEST; minidnn never
    changes them in TEST."""

    type = "BatchNorm"
    field_name = "batch_norm_param"
    in_place = True

    def running(self) -> bool:
        """Whether x is normalized by the running statistics, not by the batch's."""
        given = self.param.use_global_stats
        return self.phase == "TEST" if given is None else given

    def attrs(self, x: Tensor) -> BatchNormAttrs:
        p = self.param
        return BatchNormAttrs(p.eps, p.moving_average_fraction, x.size // x.shape[1])

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        if len(bottoms[0]) < 2:
            raise ShapeError(f"expected a bottom of 2 or more axes (N, C, ...), got {text(bottoms[0])}")
        return [bottoms[0]]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        c = bottoms[0][1]
        return [
            Parameter(name, shape, lr_mult=0.0, decay_mult=0.0, learnable=False)
            for name, shape in zip(SUMS, [(c,), (c,), (1,)], strict=True)
        ]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        attrs, sums = self.attrs(x), [s.p[name] for name in SUMS]
        if self.running():
            yield s.op("batch_norm.inference", [x, *sums], [y], attrs, [(x, y)], x.size, name="forward")
            return
        batch, copy, scratch = self.batch(s), self.copy(s), self.scratch(s, "temp")
        yield s.op("batch_norm.forward", [x], [y, *batch, *copy, *scratch], attrs, [(x, y)] if copy else (), x.size)
        if s.train:
            yield s.op("batch_norm.statistics", [*batch, *sums], sums, attrs, flops=2 * batch[0].size)

    def backward(self, s: Site) -> Iterable[Op]:
        (x,), (dy,), (dx,) = s.x, s.arriving, s.bottom_gradients
        if self.running():
            yield s.op(
                "batch_norm.inference_backward", [s.p["variance_sum"], s.p["factor"], dy], [dx],
                self.attrs(x), [(dy, dx)], x.size, name="backward", during=Pass.BACKWARD,
            )  # fmt: skip
        else:
            reads = [*(self.copy(s) or [x]), *self.batch(s), dy]
            yield s.op(
                "batch_norm.backward",
                reads,
                [dx, *self.scratch(s, "copied_gradient")],
                self.attrs(x),
                [(dy, dx)],
                x.size,
            )

    def copy(self, s: Site) -> list[Tensor]:
        """The normalized x, kept for backward so that forward can work in place, as in Caffe; empty by default."""
        return [s.extra("normalized", s.x[0].shape)] if s.facts.norm == "copy" and s.train else []

    def scratch(self, s: Site, name: str) -> list[Tensor]:
        """Another of Caffe's maps as large as x, in which it computes: temp_ forward, the diff of x_norm_ backward."""
        return [s.extra(name, s.x[0].shape)] if s.facts.norm == "copy" and s.train else []

    def batch(self, s: Site) -> list[Tensor]:
        """The batch's mean and variance, each (C,), which forward keeps for backward."""
        c = s.x[0].shape[1]
        return [s.extra("mean", (c,)), s.extra("variance", (c,))]
