"""Accuracy: the share of labels that are among the top_k scores. A tie counts against the label, as in Caffe."""

from __future__ import annotations

from dataclasses import dataclass

from minidnn.layers.base import Layer, ShapeError, axis_of
from minidnn.layers.softmax import labels_fit
from minidnn.program import Phase


@dataclass(frozen=True)
class AccuracyAttrs:
    top_k: int
    axis: int
    ignore_label: int | None


class Accuracy(Layer):
    type = "Accuracy"
    field_name = "accuracy_param"
    bottoms = (2, 2)

    def shapes(self, bottoms):
        axis = axis_of(self.param.axis, bottoms[0])
        labels_fit(bottoms, axis)
        if self.param.top_k > bottoms[0][axis]:
            raise ShapeError(f"top_k is {self.param.top_k}, but there are only {bottoms[0][axis]} scores")
        return [(1,)]

    def forward(self, s):
        x = s.x[0]
        attrs = AccuracyAttrs(self.param.top_k, axis_of(self.param.axis, x.shape), self.param.ignore_label)
        yield s.op("accuracy.forward", s.x, s.y, attrs, flops=x.size, phase=Phase.LOSS)
