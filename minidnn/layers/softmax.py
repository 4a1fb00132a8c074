"""Softmax, and the softmax loss against labels, which are class numbers (int32)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Layer, Shape, ShapeError, Site, positive_axis, text
from minidnn.program import Op, Pass, Tensor


@dataclass(frozen=True)
class SoftmaxAttrs:
    axis: int


@dataclass(frozen=True)
class SoftmaxLossAttrs:
    axis: int
    ignore_label: int | None = None
    normalization: str = "VALID"  # the divisor of the sum: "VALID" | "FULL" | "BATCH_SIZE" | "NONE"
    loss_weight: float = 1.0  # a factor of the gradient


class Softmax(Layer):
    """y = exp(x) / sum(exp(x)) along an axis."""

    type = "Softmax"
    field_name = "softmax_param"
    in_place = True
    probabilities = True

    def attrs(self, shape: Shape) -> SoftmaxAttrs:
        return SoftmaxAttrs(positive_axis(self.param.axis, shape))

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        self.attrs(bottoms[0])
        return [bottoms[0]]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        yield s.op("softmax.forward", [x], [y], self.attrs(x.shape), [(x, y)], x.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (y,), (dy,), (dx,) = s.y, s.arriving, s.wanted
        yield s.op("softmax.backward", [y, dy], [dx], self.attrs(y.shape), [(dy, dx)], y.size)


class SoftmaxWithLoss(Layer):
    """The mean of -log(softmax(x)[label]). The optional second top is softmax(x); it takes no gradient."""

    type = "SoftmaxWithLoss"
    field_name = "softmax_param"
    also = ("loss_param",)
    bottoms = (2, 2)
    tops = (1, 2)
    loss = True
    labels = 1

    def attrs(self, shape: Shape) -> SoftmaxLossAttrs:
        loss = self.spec.loss_param
        axis = positive_axis(self.param.axis, shape)
        return SoftmaxLossAttrs(axis, loss.ignore_label, loss.mode, self.loss_weight())

    def classes(self, bottoms: Sequence[Shape]) -> int | None:
        return bottoms[0][self.param.axis]

    @property
    def ignored(self) -> int | None:
        return self.spec.loss_param.ignore_label

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        scores, labels = bottoms
        check_labels(scores, labels, positive_axis(self.param.axis, scores))
        return [(1,), bottoms[0]][: len(self.spec.top)]

    def forward(self, s: Site) -> Iterable[Op]:
        x, label = s.x
        yield s.op(
            "softmax_loss.forward", [x, label], [s.y[0], self.probability(s)], self.attrs(x.shape),
            flops=x.size, during=Pass.LOSS,
        )  # fmt: skip

    def backward(self, s: Site) -> Iterable[Op]:
        x, label = s.x
        if s.dx[1] or any(s.dy):
            raise ValueError(
                f"layer {self.name}: no gradient flows into labels ({self.spec.bottom[1]}) nor out of "
                f"the tops of SoftmaxWithLoss"
            )
        probability, (dx,) = self.probability(s), s.wanted
        yield s.op(
            "softmax_loss.backward", [probability, label], [dx], self.attrs(x.shape),
            [(probability, dx)], x.size,
        )  # fmt: skip

    def probability(self, s: Site) -> Tensor:
        """softmax(x), which backward reads: the second top, or else a tensor kept for backward."""
        return s.y[1] if len(s.y) > 1 else s.extra("prob", s.x[0].shape)


def check_labels(scores: Shape, labels: Shape, axis: int) -> None:
    """Raise ShapeError unless there is one label for each vector of scores: (N,) for scores (N, classes)."""
    wanted = scores[:axis] + scores[axis + 1 :]
    if math.prod(labels) != math.prod(wanted):
        raise ShapeError(
            f"scores of shape {text(scores)} (classes along axis {axis}) need {math.prod(wanted)} labels, "
            f"got {math.prod(labels)} ({text(labels)})"
        )
