"""The parts that losses have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from minidnn.layers.base import Layer, Shape, ShapeError, Site, text
from minidnn.program import Op, Tensor


class Loss(Layer):
    """A layer whose first top is one number that joins the objective: with a weight of 1, or with its loss_weight."""

    loss = True
    unnamed = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        return [(1,)]

    def backward(self, s: Site) -> Iterable[Op]:
        if any(s.dy):
            raise ValueError(f"layer {self.name}: no gradient flows out of the tops of {self.type}")
        return self.gradients(s)

    def gradients(self, s: Site) -> Iterable[Op]:
        """The ops that compute those of s.dx that are not None, times the loss's weight."""
        raise NotImplementedError

    def refuse_smoothing(self) -> None:
        """Raise ShapeError if the file asks for label_smoothing, which SoftmaxWithLoss alone has."""
        if self.spec.loss_param.label_smoothing:
            raise ShapeError(f"label_smoothing is for SoftmaxWithLoss, and {self.type} has none")


def check_labels(scores: Shape, labels: Shape, axis: int) -> None:
    """Raise ShapeError unless there is one label for each vector of scores: (N,) for scores (N, classes)."""
    wanted = scores[:axis] + scores[axis + 1 :]
    if math.prod(labels) != math.prod(wanted):
        raise ShapeError(
            f"scores of shape {text(scores)} (classes along axis {axis}) need {math.prod(wanted)} labels, "
            f"got {math.prod(labels)} ({text(labels)})"
        )


def check_paired(layer: Layer, bottoms: Sequence[Shape]) -> None:
    """Raise ShapeError unless all bottoms have as many samples as the first one, and as many elements."""
    first, names = bottoms[0], layer.spec.bottom
    for i, other in enumerate(bottoms):
        if math.prod(other) != math.prod(first) or other[:1] != first[:1]:
            raise ShapeError(
                f"bottom {i} ({names[i]}) is {text(other)}, bottom 0 ({names[0]}) {text(first)}: "
                f"{layer.type} takes as many samples and elements of each"
            )


def in_shape(s: Site, i: int, shape: Shape) -> Tensor:
    """Bottom i with its elements in the order of a tensor of this shape: itself, or an extra that `moves` fills.

    Only images lie in another order on some devices, unless they have one channel or one pixel."""

    def plain(shape: Shape) -> bool:
        return len(shape) != 4 or shape[1] == 1 or shape[2] * shape[3] == 1

    t = s.x[i]
    return t if t.shape == shape or (plain(t.shape) and plain(shape)) else s.extra(f"x{i}.flat", shape)


def moves(s: Site, reads: Sequence[Tensor]) -> Iterable[Op]:
    """The ops that fill those of `reads` that are not the bottoms themselves."""
    for i, (x, t) in enumerate(zip(s.x, reads, strict=False)):
        if x is not t:
            yield s.op("flatten.forward", [x], [t], flops=t.size, name=f"flatten_x{i}")


def gradients_of(s: Site, reads: Sequence[Tensor]) -> tuple[list[Tensor], tuple[tuple[Tensor, Tensor], ...], list[Op]]:
    """(writes, pairs, ops) of an op that writes the wanted gradients, each in the shape of its read.

    pairs: the reads and writes that may share bytes
    ops:   they bring the gradients into the shapes of the bottoms"""
    writes, pairs, after = [], [], []
    for i, dx in enumerate(s.dx):
        if dx is None:
            continue
        t = dx
        if reads[i] is not s.x[i]:
            t = Tensor(f"{dx.name}.flat", reads[i].shape, dx.dtype, dx.role)
            after.append(s.op("flatten.backward", [t], [dx], flops=t.size, name=f"backward_flatten_x{i}"))
        if list(reads).count(reads[i]) == 1:
            pairs.append((reads[i], t))
        writes.append(t)
    return writes, tuple(pairs), after
