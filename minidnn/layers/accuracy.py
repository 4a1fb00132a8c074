"""Accuracy: the share of samples whose label is among the top_k scores, of all samples and of those of each class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Layer, Shape, ShapeError, Site, positive_axis
from minidnn.layers.loss import check_labels
from minidnn.program import Op, Pass


@dataclass(frozen=True)
class AccuracyAttrs:
    top_k: int
    axis: int
    ignore_label: int | None = None


class Accuracy(Layer):
    """Caffe's Accuracy. A class with the same score as the label counts as better. So if all scores are equal, the
    sample is wrong, unless top_k covers all classes.

    An optional second top is the accuracy of each class; it is 0 for a class without labels.
    """

    type = "Accuracy"
    field_name = "accuracy_param"
    bottoms = (2, 2)
    tops = (1, 2)
    unnamed = True
    each = (1,)
    labels = 1

    def attrs(self, shape: Shape) -> AccuracyAttrs:
        p = self.param
        return AccuracyAttrs(p.top_k, positive_axis(p.axis, shape), p.ignore_label)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        scores, labels = bottoms
        axis = positive_axis(self.param.axis, scores)
        check_labels(scores, labels, axis)
        if self.param.top_k > scores[axis]:
            raise ShapeError(f"top_k {self.param.top_k} exceeds the {scores[axis]} classes")
        tops: list[Shape] = [(1,), (scores[axis],)]
        return tops[: len(self.spec.top)]

    def classes(self, bottoms: Sequence[Shape]) -> int | None:
        return bottoms[0][self.param.axis]

    @property
    def ignored(self) -> int | None:
        return self.param.ignore_label

    def dtypes(self, bottoms: Sequence[str]) -> list[str]:
        return ["float32"] * len(self.spec.top)

    def forward(self, s: Site) -> Iterable[Op]:
        attrs, (y, *of_classes) = self.attrs(s.x[0].shape), s.y
        yield s.op("accuracy.forward", s.x, [y], attrs, flops=s.x[0].size, during=Pass.LOSS)
        if of_classes:
            yield s.op("accuracy.by_class", s.x, of_classes, attrs, flops=s.x[0].size, during=Pass.LOSS)

    def backward(self, s: Site) -> Iterable[Op]:
        raise ValueError(f"layer {self.name}: Accuracy has no gradient")
