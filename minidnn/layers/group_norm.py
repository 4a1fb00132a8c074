"""Layers that shift and scale each group of channels of a sample by its own mean and deviation: GroupNorm,
InstanceNorm.

    y = (x - mean) / sqrt(variance + eps) (* gamma + beta)

Backward reads x, and of each group its mean and 1 / deviation. One op computes x's gradient and, of each sample and
channel, the sums that are the sample's part of the gradients of gamma and beta. So all of it is local to samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from minidnn.layers.base import Layer, Parameter, Shape, ShapeError, Site, text
from minidnn.program import Op, Tensor


@dataclass(frozen=True)
class GroupNormAttrs:
    groups: int
    eps: float


class GroupNorm(Layer):
    """Ours, after Wu and He, "Group Normalization" (2018). The channels form `num_groups` groups of adjacent channels.
    Each group of each sample is normalized by its mean and biased variance. With `affine`, each channel is then scaled
    by its gamma and shifted by its beta."""

    type = "GroupNorm"
    field_name = "group_norm_param"
    needs: ClassVar[tuple[str, ...]] = ("num_groups",)

    def groups(self, shape: Shape) -> int:
        count: int = self.param.num_groups
        if shape[1] % count:
            raise ShapeError(f"num_groups {count} does not divide the {shape[1]} channels of the bottom {text(shape)}")
        return count

    def attrs(self, shape: Shape) -> GroupNormAttrs:
        if len(shape) < 2:
            raise ShapeError(f"expected a bottom of 2 or more axes (N, C, ...), got {text(shape)}")
        return GroupNormAttrs(self.groups(shape), self.param.eps)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        self.attrs(bottoms[0])
        return [bottoms[0]]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        p, channels = self.param, bottoms[0][1:2]
        fillers = [("gamma", p.filler), ("beta", p.bias_filler)] if p.affine else []
        return [
            Parameter(name, channels, filler, *self.mults(i), float32=True) for i, (name, filler) in enumerate(fillers)
        ]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,), a = s.x, s.y, self.attrs(s.x[0].shape)
        reads, kept = [x, *s.p.values()], self._kept(s, a)
        yield s.op("group_norm.forward", reads, [y, *kept], a, [(x, y)], 5 * x.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (x,), (dy,), a = s.x, s.arriving, self.attrs(s.x[0].shape)
        sums = {name: s.extra(f"{name}.sums", x.shape[:2]) for name in ("gamma", "beta")}
        reads = [x, dy, *self._kept(s, a), *([s.p["gamma"]] if s.p else [])]
        pairs = [pair for dx in s.bottom_gradients for pair in ((dy, dx), (x, dx))]
        yield s.op("group_norm.backward", reads, [*sums.values(), *s.bottom_gradients], a, pairs, 9 * x.size)
        for name, gradient in s.dp.items():
            if gradient is not None:
                by_sample, what = [sums[name]], f"backward_{name}"
                yield s.op("scale.backward_bias", by_sample, [gradient], flops=sums[name].size, name=what)

    def _kept(self, s: Site, a: GroupNormAttrs) -> list[Tensor]:
        """What forward keeps for backward: 1 / deviation of each group of each sample, and its mean."""
        return [s.extra(name, (s.x[0].shape[0], a.groups)) for name in ("inverse", "mean")]


class InstanceNorm(GroupNorm):
    """Ours, after Ulyanov, Vedaldi and Lempitsky, "Instance Normalization: The Missing Ingredient for Fast Stylization"
    (2016): a GroupNorm with one group per channel."""

    type = "InstanceNorm"
    field_name = "instance_norm_param"
    needs = ()

    def groups(self, shape: Shape) -> int:
        return shape[1]
