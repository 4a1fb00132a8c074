"""Losses that add up one number for each element: by a target for each, or by a label for each sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from minidnn.layers.base import Shape, ShapeError, Site
from minidnn.layers.loss import Loss, check_labels, check_paired, gradients_of, in_shape, moves
from minidnn.program import Op, Pass


@dataclass(frozen=True)
class DistanceAttrs:
    """The losses are those of backends/reference/distance.py. A label counts as a target of 1 for its class, and of 0
    for the others."""

    function: str  # "SIGMOID_CROSS_ENTROPY" | "SQUARE" | "SMOOTH_L1" | "HINGE_L1" | "HINGE_L2" | "LOGISTIC"
    normalization: str = "BATCH_SIZE"  # the divisor of the sum: "VALID" | "FULL" | "BATCH_SIZE" | "NONE"
    ignore_label: int | None = None  # targets whose whole part is this do not count
    sigma: float = 1.0  # of "SMOOTH_L1"
    loss_weight: float = 1.0  # a factor of the gradients
    into: tuple[int, ...] = ()  # in backward: the bottoms, of the first two, that get a gradient


class _Pointwise(Loss):
    """The sum of a function of each element, over a divisor."""

    bottoms: ClassVar[tuple[int, int | None]] = (2, 2)

    def attrs(self) -> DistanceAttrs:
        raise NotImplementedError

    def read_as(self, shape: Shape) -> Shape:
        """The shape in whose order kernels read the bottoms, from the first one's."""
        return shape

    def reads(self, s: Site) -> list:
        shape = self.read_as(s.x[0].shape)
        return [x if x.dtype == "int32" else in_shape(s, i, shape) for i, x in enumerate(s.x)]

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        check_paired(self, bottoms)
        return [(1,)]

    def forward(self, s: Site) -> Iterable[Op]:
        reads = self.reads(s)
        yield from moves(s, reads)
        yield s.op("pointwise_loss.forward", reads, s.y, self.attrs(), flops=s.x[0].size, during=Pass.LOSS)

    def gradients(self, s: Site) -> Iterable[Op]:
        reads = self.reads(s)
        writes, pairs, after = gradients_of(s, reads)
        attrs = replace(self.attrs(), into=tuple(i for i, dx in enumerate(s.dx) if dx is not None))
        yield s.op("pointwise_loss.backward", reads, writes, attrs, pairs, flops=s.x[0].size)
        yield from after


class SigmoidCrossEntropyLoss(_Pointwise):
    """Caffe's loss: the sum of -t log(p) - (1 - t) log(1 - p), where p = sigmoid(x), for targets t from 0 to 1. The sum
    is divided by the number of samples, unless the file gives a normalization. Targets whose integer part is
    `ignore_label` do not count, as in Caffe."""

    type = "SigmoidCrossEntropyLoss"
    field_name = "loss_param"
    targets = (1,)

    def attrs(self) -> DistanceAttrs:
        p = self.param
        return DistanceAttrs(
            "SIGMOID_CROSS_ENTROPY", p.mode("BATCH_SIZE"), p.ignore_label, loss_weight=self.loss_weight()
        )

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        self.refuse_smoothing()
        return super().shapes(bottoms)


class EuclideanLoss(_Pointwise):
    """Caffe's loss: the sum of (a - b)^2 / 2, divided by the number of samples. Both bottoms get a gradient."""

    type = "EuclideanLoss"

    def attrs(self) -> DistanceAttrs:
        return DistanceAttrs("SQUARE", loss_weight=self.loss_weight())


class SmoothL1Loss(_Pointwise):
    """Faster R-CNN's loss (Ren 2015): the sum of outside f(d), divided by the number of samples, where d = inside (a -
    b). f(d) is (sigma d)^2 / 2 where |d| < 1 / sigma^2, and |d| - 1 / (2 sigma^2) elsewhere. The third bottom holds the
    inside weights, the fourth the outside weights; both default to 1. Both a and b get a gradient."""

    type = "SmoothL1Loss"
    field_name = "smooth_l1_loss_param"
    bottoms = (2, 4)
    targets = (2, 3)

    def attrs(self) -> DistanceAttrs:
        return DistanceAttrs("SMOOTH_L1", sigma=self.param.sigma, loss_weight=self.loss_weight())


class _Labelled(_Pointwise):
    """A loss of a score per class, and of one label per sample. All axes behind the first are classes, as in Caffe."""

    targets = (1,)
    labels = 1

    def read_as(self, shape: Shape) -> Shape:
        return shape[0], math.prod(shape[1:])

    def classes(self, bottoms: Sequence[Shape]) -> int | None:
        return math.prod(bottoms[0][1:])

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        scores, labels = bottoms
        if len(scores) < 2:
            raise ShapeError(f"expected scores of 2 or more axes (N, classes), got {scores}")
        check_labels(self.read_as(scores), labels, 1)
        return [(1,)]


class HingeLoss(_Labelled):
    """Caffe's loss: the sum of max(0, 1 - s x), divided by the number of samples, where s is 1 for the label's class
    and -1 for all others. With the norm L2, the terms are squared."""

    type = "HingeLoss"
    field_name = "hinge_loss_param"

    def attrs(self) -> DistanceAttrs:
        return DistanceAttrs(f"HINGE_{self.param.norm}", loss_weight=self.loss_weight())


class MultinomialLogisticLoss(_Labelled):
    """Caffe's loss: the mean of -log(p), where p is the probability of the label's class, clipped to at least 1e-20.
    The bottom holds probabilities, such as the output of a Softmax."""

    type = "MultinomialLogisticLoss"

    def attrs(self) -> DistanceAttrs:
        return DistanceAttrs("LOGISTIC", loss_weight=self.loss_weight())
