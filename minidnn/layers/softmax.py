"""Softmax, and the softmax loss against labels, which are class numbers (int32)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from minidnn.layers.base import Layer, Shape, Site, positive_axis
from minidnn.layers.loss import Loss, check_labels
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
    label_smoothing: float = 0.0  # the share of a label that all classes get alike


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
        (y,), (dy,), (dx,) = s.y, s.arriving, s.bottom_gradients
        yield s.op("softmax.backward", [y, dy], [dx], self.attrs(y.shape), [(dy, dx)], y.size)


class SoftmaxWithLoss(Loss):
    """The mean of -log(softmax(x)[label]). The optional second top is softmax(x); it gets no gradient. With
    `label_smoothing` e, a label counts as 1 - e of its class plus e / K of each of the K classes (Szegedy 2016).
    """

    type = "SoftmaxWithLoss"
    field_name = "softmax_param"
    also = ("loss_param",)
    bottoms: ClassVar[tuple[int, int | None]] = (2, 2)
    tops = (1, 2)
    targets: ClassVar[tuple[int, ...]] = (1,)
    labels = 1

    def attrs(self, shape: Shape) -> SoftmaxLossAttrs:
        loss = self.spec.loss_param
        axis = positive_axis(self.param.axis, shape)
        return SoftmaxLossAttrs(axis, loss.ignore_label, loss.mode(), self.loss_weight(), loss.label_smoothing)

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
        x, label = s.x[:2]
        yield s.op(
            "softmax_loss.forward", [x, label, *self.matrix(s)], [s.y[0], self.probability(s)], self.attrs(x.shape),
            flops=x.size, during=Pass.LOSS,
        )  # fmt: skip

    def gradients(self, s: Site) -> Iterable[Op]:
        x, label = s.x[:2]
        probability, (dx,) = self.probability(s), s.bottom_gradients
        yield s.op(
            "softmax_loss.backward", [probability, label, *self.matrix(s)], [dx], self.attrs(x.shape),
            [(probability, dx)], x.size,
        )  # fmt: skip

    def matrix(self, s: Site) -> list[Tensor]:
        """The matrix that says what a mistake costs; InfogainLoss has one."""
        return []

    def probability(self, s: Site) -> Tensor:
        """softmax(x), which backward reads: the second top, or else a tensor kept for backward."""
        return s.y[1] if len(s.y) > 1 else s.extra("prob", s.x[0].shape)
