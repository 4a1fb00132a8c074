"""ContrastiveLoss: of pairs of vectors, which are to be near each other or apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from minidnn.layers.base import Shape, ShapeError, Site, text
from minidnn.layers.loss import Loss, check_paired, gradients_of
from minidnn.program import Op, Pass


@dataclass(frozen=True)
class ContrastiveAttrs:
    margin: float
    legacy: bool  # whether the margin is one of squared distances
    loss_weight: float = 1.0  # a factor of the gradients
    into: tuple[int, ...] = ()  # in backward: the bottoms, of the first two, that get a gradient


class ContrastiveLoss(Loss):
    """Caffe's loss (Hadsell 2006) of N pairs of vectors at distances d. A pair contributes d^2 if its label is not 0,
    otherwise max(0, margin - d)^2, or max(0, margin - d^2) with `legacy_version`. The loss is the sum divided by 2 N.
    """

    type = "ContrastiveLoss"
    field_name = "contrastive_loss_param"
    bottoms = (3, 3)
    targets = (2,)
    labels = 2

    def attrs(self) -> ContrastiveAttrs:
        return ContrastiveAttrs(self.param.margin, self.param.legacy_version, self.loss_weight())

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        a, b, similar = bottoms
        for shape in (a, b):
            if len(shape) < 2 or math.prod(shape[2:]) != 1:
                raise ShapeError(f"expected vectors, (N, C) or (N, C, 1, 1); got {text(shape)}")
        check_paired(self, bottoms[:2])
        if math.prod(similar) != a[0]:
            raise ShapeError(f"{a[0]} pairs need {a[0]} labels, got {math.prod(similar)} ({text(similar)})")
        return [(1,)]

    def forward(self, s: Site) -> Iterable[Op]:
        yield s.op("contrastive_loss.forward", s.x, s.y, self.attrs(), flops=3 * s.x[0].size, during=Pass.LOSS)

    def gradients(self, s: Site) -> Iterable[Op]:
        writes, pairs, _ = gradients_of(s, s.x)
        attrs = replace(self.attrs(), into=tuple(i for i, dx in enumerate(s.dx) if dx is not None))
        yield s.op("contrastive_loss.backward", s.x, writes, attrs, pairs, flops=4 * s.x[0].size)
