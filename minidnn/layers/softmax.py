"""Softmax, and its loss against labels."""

from __future__ import annotations

from dataclasses import dataclass

from minidnn.layers.base import Layer, ShapeError, axis_of
from minidnn.program import Phase


@dataclass(frozen=True)
class SoftmaxAttrs:
    axis: int


@dataclass(frozen=True)
class SoftmaxLossAttrs:
    axis: int
    ignore_label: int | None
    normalization: str
    loss_weight: float = 1.0


class Softmax(Layer):
    type = "Softmax"
    field_name = "softmax_param"
    in_place = True

    def shapes(self, bottoms):
        axis_of(self.param.axis, bottoms[0])
        return [bottoms[0]]

    def forward(self, s):
        (x,), (y,) = s.x, s.y
        attrs = SoftmaxAttrs(axis_of(self.param.axis, x.shape))
        yield s.op("softmax.forward", [x], [y], attrs, inplace=[(x, y)], flops=5 * x.size)

    def backward(self, s):
        (y,), (dy,), (dx,) = s.y, s.dy, s.dx
        attrs = SoftmaxAttrs(axis_of(self.param.axis, y.shape))
        yield s.op("softmax.backward", [y, dy], [dx], attrs, inplace=[(dy, dx)], flops=4 * y.size)


class SoftmaxWithLoss(Layer):
    """-log of the label's softmax, divided as loss_param says; the softmax is kept for backward."""

    type = "SoftmaxWithLoss"
    field_name = "softmax_param"
    also = ("loss_param",)
    bottoms = (2, 2)
    loss = True

    def shapes(self, bottoms):
        labels_fit(bottoms, axis_of(self.param.axis, bottoms[0]))
        return [(1,)]

    def attrs(self, s):
        p = self.spec.loss_param
        weight = self.spec.loss_weight[0] if self.spec.loss_weight else 1.0
        return SoftmaxLossAttrs(axis_of(self.param.axis, s.x[0].shape), p.ignore_label, p.mode, weight)

    def prob(self, s):
        return s.extra("prob", s.x[0].shape)

    def forward(self, s):
        (x, label), (loss,) = s.x, s.y
        writes = [loss, self.prob(s)]
        yield s.op("softmax_loss.forward", [x, label], writes, self.attrs(s), flops=6 * x.size, phase=Phase.LOSS)

    def backward(self, s):
        (_, label), dx, prob = s.x, s.dx[0], self.prob(s)
        reads = [prob, label]
        yield s.op("softmax_loss.backward", reads, [dx], self.attrs(s), inplace=[(prob, dx)], flops=2 * prob.size)


def labels_fit(bottoms, axis):
    """Scores without `axis` must have as many places as there are labels."""
    scores, labels = bottoms
    want = (*scores[:axis], *scores[axis + 1 :])
    if labels != want and labels != (*scores[:axis], 1, *scores[axis + 1 :]):
        raise ShapeError(f"labels of shape {labels} do not go with scores of shape {scores}: {want} would")
