"""Layers that shift and scale each row of a tensor by the row's own mean and size: LayerNorm, RMSNorm, MVN, Normalize.

    y = (x - mean) / divisor (* gamma + beta)

A row is all elements along some axes that follow one another. Backward reads y instead of x if there are no gamma and
beta.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from minidnn.layers.base import Layer, Parameter, Shape, ShapeError, Site, positive_axis, text
from minidnn.layers.broadcast import BroadcastAttrs
from minidnn.program import Op, Pass, Role, Tensor


@dataclass(frozen=True)
class RowNormAttrs:
    """A row has the axes first <= axis < last.

    centred: whether the mean is subtracted; else `mean` in the formula is 0
    divisor: "VARIANCE": sqrt(variance + eps). "DEVIATION": sqrt(variance) + eps. "NORM": sqrt(the sum of squares +
             eps). "NONE": 1. The variance is the biased one; if the mean is 0 it is the mean of squares.
    """

    first: int
    last: int
    centred: bool
    divisor: str
    eps: float


def statistics(shape: Shape, a: RowNormAttrs) -> Shape:
    """The shape of a number per row, which lies as the rows do: 1 along the rows' axes."""
    return tuple(1 if a.first <= i < a.last else n for i, n in enumerate(shape))


def forward(s: Site, a: RowNormAttrs, y: Tensor, parameters: Sequence[Tensor] = ()) -> Op:
    """The op x (gamma beta) -> y (inverse) (mean): 1 / divisor of each row, and its mean if backward needs it."""
    (x,) = s.x
    kept = [] if a.divisor == "NONE" else [s.extra("inverse", statistics(x.shape, a))]
    if parameters:
        kept.append(s.extra("mean", statistics(x.shape, a)))
    return s.op("row_norm.forward", [x, *parameters], [y, *kept], a, [(x, y)], 4 * x.size)


def backward(s: Site, a: RowNormAttrs, y: Tensor, dy: Tensor) -> Op:
    """The op y dy inverse -> dx, for rows that were normalized to y; dy -> dx if they were not divided."""
    (dx,) = s.bottom_gradients
    reads = [dy] if a.divisor == "NONE" else [y, dy, s.extra("inverse", statistics(dy.shape, a))]
    return s.op("row_norm.backward_data", reads, [dx], a, [(dy, dx)], 6 * dy.size)


class LayerNorm(Layer):
    """Ours, after Ba, Kiros and Hinton, "Layer Normalization" (2016). A row consists of `num_axes` axes from `axis` on,
    or of all for -1. It is normalized by its mean and biased variance. With `affine`, each of its elements is then
    scaled by its gamma and shifted by its beta. With `axis: 1, num_axes: 1` a row is the channels of a pixel."""

    type = "LayerNorm"
    field_name = "layer_norm_param"

    def attrs(self, shape: Shape) -> RowNormAttrs:
        p, first = self.param, positive_axis(self.param.axis, shape)
        last = len(shape) if p.num_axes < 0 else first + p.num_axes
        if last > len(shape) or last == first:
            raise ShapeError(
                f"num_axes {p.num_axes} from axis {first} on: expected 1 to {len(shape) - first} axes of the bottom "
                f"{text(shape)}, or -1 for all"
            )
        if len(shape) == 4 and first <= 1 < last < 4 and last - first > 1:
            raise ShapeError(
                f"axes {first} to {last - 1} of the bottom {text(shape)} are not rows of images, whose channels are "
                "innermost; take the channels alone (axis: 1, num_axes: 1), or all axes from 1 on"
            )
        return RowNormAttrs(first, last, True, "VARIANCE", p.eps)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        self.attrs(bottoms[0])
        return [bottoms[0]]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        if not self.param.affine:
            return []
        p, shape, a = self.param, bottoms[0], self.attrs(bottoms[0])
        blob = shape[a.first : a.last]
        # A whole image lies as an image; all other rows lie in the order of their axes.
        images = {0: shape, 1: (1, *shape[1:])} if len(shape) == a.last == 4 else {}
        lying = images.get(a.first, (math.prod(blob),))
        fillers = [("gamma", p.filler), ("beta", p.bias_filler)]
        return [
            Parameter(name, lying, filler, *self.mults(i), blob_shape=blob, float32=True)
            for i, (name, filler) in enumerate(fillers)
        ]

    def forward(self, s: Site) -> Iterable[Op]:
        yield forward(s, self.attrs(s.x[0].shape), s.y[0], list(s.p.values()))

    def backward(self, s: Site) -> Iterable[Op]:
        (x,), (dy,), a = s.x, s.arriving, self.attrs(s.x[0].shape)
        if not s.p:
            yield backward(s, a, s.y[0], dy)
            return
        reads = [x, dy, *(s.extra(name, statistics(x.shape, a)) for name in ("inverse", "mean"))]
        gradients = [s.dp["gamma"], s.dp["beta"]]
        if any(gradients):
            # One pass gives both. A frozen one's is computed, too, and read by nobody.
            written = [t or s.extra(f"{name}.grad", s.p[name].shape, role=Role.PARAM_GRADIENT)
                       for name, t in zip(s.p, gradients, strict=True)]  # fmt: skip
            yield s.op("row_norm.backward_filter", reads, written, a, flops=4 * x.size)
        for dx in s.bottom_gradients:
            pairs = [(dy, dx), (x, dx)]
            yield s.op("row_norm.backward_data", [*reads, s.p["gamma"]], [dx], a, pairs, 8 * x.size)


class RMSNorm(Layer):
    """Ours, after Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019). A row, of all axes from `axis` on,
    is divided by sqrt(the mean of its squares + eps). For the paper's gain, add a Scale with the same axis and
    `num_axes: -1`."""

    type = "RMSNorm"
    field_name = "rms_norm_param"

    def attrs(self, shape: Shape) -> RowNormAttrs:
        return RowNormAttrs(positive_axis(self.param.axis, shape), len(shape), False, "VARIANCE", self.param.eps)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        self.attrs(bottoms[0])
        return [bottoms[0]]

    def forward(self, s: Site) -> Iterable[Op]:
        yield forward(s, self.attrs(s.x[0].shape), s.y[0])

    def backward(self, s: Site) -> Iterable[Op]:
        yield backward(s, self.attrs(s.x[0].shape), s.y[0], s.arriving[0])


class MVN(Layer):
    """Caffe's MVN: subtracts the mean of a channel of an image, or of the whole image (`across_channels`), and divides
    by the standard deviation plus eps. Its gradient is exact; Caffe's ignores eps."""

    type = "MVN"
    field_name = "mvn_param"

    def attrs(self, shape: Shape) -> RowNormAttrs:
        p = self.param
        first = min(1 if p.across_channels else 2, len(shape))
        return RowNormAttrs(first, len(shape), True, "DEVIATION" if p.normalize_variance else "NONE", p.eps)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        if not bottoms[0]:
            raise ShapeError(f"expected a bottom of 1 or more axes, got {text(bottoms[0])}")
        return [bottoms[0]]

    def forward(self, s: Site) -> Iterable[Op]:
        yield forward(s, self.attrs(s.x[0].shape), s.y[0])

    def backward(self, s: Site) -> Iterable[Op]:
        yield backward(s, self.attrs(s.x[0].shape), s.y[0], s.arriving[0])


class Normalize(Layer):
    """SSD's Normalize: divides the channels at each position, or the whole sample (`across_spatial`), by the L2 norm,
    sqrt(the sum of squares + eps). Then it scales each channel by its gamma, or all channels by one gamma."""

    type = "Normalize"
    field_name = "norm_param"

    def attrs(self, shape: Shape) -> RowNormAttrs:
        return RowNormAttrs(1, len(shape) if self.param.across_spatial else 2, False, "NORM", self.param.eps)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        if len(bottoms[0]) < 2:
            raise ShapeError(f"expected a bottom of 2 or more axes (N, C, ...), got {text(bottoms[0])}")
        return [bottoms[0]]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        p = self.param
        shape = (1,) if p.channel_shared else (bottoms[0][1],)
        return [Parameter("gamma", shape, p.scale_filler, *self.mults(0), float32=True)]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        normalized = self._normalized(s)
        yield forward(s, self.attrs(x.shape), normalized)
        yield s.op("broadcast.multiply", [normalized, s.p["gamma"]], [y], self._span(), flops=x.size, name="scale")

    def backward(self, s: Site) -> Iterable[Op]:
        (dy,), normalized, gamma, how = s.arriving, self._normalized(s), s.dp["gamma"], self._span()
        if gamma is not None:
            reads, name = [normalized, dy], "backward_filter"
            yield s.op("broadcast.sum_products", reads, [gamma], how, (), 2 * dy.size, name, Pass.BACKWARD)
        for dx in s.bottom_gradients:
            scaled, reads = replace(dx, name=f"{s.layer}.normalized.grad"), [dy, s.p["gamma"]]
            yield s.op(
                "broadcast.multiply", reads, [scaled], how, [(dy, scaled)], dy.size, "backward_scale", Pass.BACKWARD
            )
            yield backward(s, self.attrs(dy.shape), normalized, scaled)

    def _normalized(self, s: Site) -> Tensor:
        return s.extra("normalized", s.x[0].shape, s.x[0].dtype)

    def _span(self) -> BroadcastAttrs:
        return BroadcastAttrs(0 if self.param.channel_shared else 1)
