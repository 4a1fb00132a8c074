"""Slice: cuts its bottom into tops along an axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from minidnn.layers.base import Shape, ShapeError, Site, positive_axis, text
from minidnn.layers.concat import ConcatAttrs
from minidnn.layers.moving import Moving
from minidnn.program import Op, Pass


class Slice(Moving):
    """Caffe's Slice: top i goes from slice point i - 1 to slice point i. Without slice points all tops have the same
    length.

    The ops are those of Concat, in the opposite direction.
    """

    type = "Slice"
    field_name = "slice_param"
    tops = (1, None)

    def cuts(self, shape: Shape) -> tuple[int, list[int]]:
        """(the axis, where the tops begin along it, and at last where the bottom ends). Raises ShapeError."""
        axis = positive_axis(self.param.axis, shape)
        points, n, length = list(self.param.slice_point), len(self.spec.top), shape[axis]
        what = f"axis {axis} of the bottom {text(shape)}"
        if not points and length % n:
            raise ShapeError(f"{what} cannot be cut into {n} equal parts; give slice_point, or a divisor of {length}")
        if points and len(points) != n - 1:
            raise ShapeError(f"expected {len(points) + 1} tops for {len(points)} slice_point, got {n}")
        cuts = [0, *points, length] if points else list(range(0, length + 1, length // n))
        if any(a >= b for a, b in pairwise(cuts)):
            raise ShapeError(f"slice_point must rise, from 1 up to {length - 1}, to cut {what}; got {points}")
        return axis, cuts

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        (shape,) = bottoms
        axis, cuts = self.cuts(shape)
        return [(*shape[:axis], b - a, *shape[axis + 1 :]) for a, b in pairwise(cuts)]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,) = s.x
        axis, cuts = self.cuts(x.shape)
        attrs = ConcatAttrs(axis, tuple(cuts[:-1]))
        yield s.op("concat.backward", [x], s.y, attrs, flops=x.size, name="forward", during=Pass.FORWARD)

    def backward(self, s: Site) -> Iterable[Op]:
        """One op writes the whole gradient: it is 0 in the parts of tops that no gradient reaches."""
        (dx,) = s.bottom_gradients
        axis, cuts = self.cuts(dx.shape)
        parts = [(start, dy) for start, dy in zip(cuts, s.dy, strict=False) if dy]
        attrs = ConcatAttrs(axis, tuple(start for start, _ in parts))
        reads = [dy for _, dy in parts]
        yield s.op("concat.forward", reads, [dx], attrs, flops=dx.size, name="backward", during=Pass.BACKWARD)
