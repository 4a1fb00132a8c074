"""Accuracy: the share of samples whose label is among the top_k scores."""

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
    """Caffe's Accuracy. Another class with the same score as the label's counts as better: if all scores are equal, a
    sample counts as wrong, unless top_k takes in all classes."""

    type = "Accuracy"
    field_name = "accuracy_param"
    bottoms = (2, 2)
    unnamed = True
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
        return [(1,)]

    def classes(self, bottoms: Sequence[Shape]) -> int | None:
        return bottoms[0][self.param.axis]

    @property
    def ignored(self) -> int | None:
        return self.param.ignore_label

    def dtypes(self, bottoms: Sequence[str]) -> list[str]:
        return ["float32"]

    def forward(self, s: Site) -> Iterable[Op]:
        yield s.op("accuracy.forward", s.x, s.y, self.attrs(s.x[0].shape), flops=s.x[0].size, during=Pass.LOSS)

    def backward(self, s: Site) -> Iterable[Op]:
        raise ValueError(f"layer {self.name}: Accuracy has no gradient")
