"""Concat: y holds the bottoms one after another along an axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from minidnn.layers.base import Layer, Shape, ShapeError, Site, positive_axis, text
from minidnn.program import Op


@dataclass(frozen=True)
class ConcatAttrs:
    axis: int
    starts: tuple[int, ...]  # per part, the place along the axis where it begins in the whole


class Concat(Layer):
    """Caffe's Concat. The bottoms' shapes may differ only along the axis."""

    type = "Concat"
    field_name = "concat_param"
    bottoms = (1, None)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        first = bottoms[0]
        axis = positive_axis(self.param.axis, first)
        for i, shape in enumerate(bottoms):
            if len(shape) != len(first) or any(
                a != b for k, (a, b) in enumerate(zip(shape, first, strict=True)) if k != axis
            ):
                raise ShapeError(
                    f"bottoms may differ along axis {axis} only; bottom {i} ({self.spec.bottom[i]}) is "
                    f"{text(shape)}, bottom 0 ({self.spec.bottom[0]}) {text(first)}"
                )
        return [(*first[:axis], sum(shape[axis] for shape in bottoms), *first[axis + 1 :])]

    def places(self, s: Site) -> tuple[int, tuple[int, ...]]:
        """(the axis, where each bottom begins along it)"""
        axis = positive_axis(self.param.axis, s.x[0].shape)
        return axis, (0, *accumulate(x.shape[axis] for x in s.x[:-1]))

    def forward(self, s: Site) -> Iterable[Op]:
        (y,) = s.y
        axis, starts = self.places(s)
        yield s.op("concat.forward", s.x, [y], ConcatAttrs(axis, starts), flops=y.size)

    def backward(self, s: Site) -> Iterable[Op]:
        """One op writes all wanted gradients, each from its own part of dy."""
        (dy,) = s.arriving
        axis, starts = self.places(s)
        wanted = [(start, dx) for start, dx in zip(starts, s.dx, strict=True) if dx]
        attrs = ConcatAttrs(axis, tuple(start for start, _ in wanted))
        writes = [dx for _, dx in wanted]
        yield s.op("concat.backward", [dy], writes, attrs, flops=sum(dx.size for dx in writes))
