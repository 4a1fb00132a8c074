"""ArgMax: the places of the largest elements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Layer, Shape, ShapeError, Site, positive_axis, text
from minidnn.layers.reshaping import move, other
from minidnn.program import Op


@dataclass(frozen=True)
class ArgMaxAttrs:
    top_k: int
    out_max_val: bool
    axis: int | None  # None: the rows are whole samples


class ArgMax(Layer):
    """Caffe's ArgMax, with float32 outputs. Among equal elements, the last ranks first. NaN ranks above all numbers.

    With `axis` the top has the bottom's shape with length top_k along that axis. It holds indices, or values with
    out_max_val. Without `axis`, the top is (N, 1, top_k, ...), the indices in each sample; with out_max_val it is (N,
    2, top_k, ...), indices and values.
    """

    type = "ArgMax"
    field_name = "argmax_param"

    def attrs(self, shape: Shape) -> ArgMaxAttrs:
        p = self.param
        return ArgMaxAttrs(p.top_k, p.out_max_val, None if p.axis is None else positive_axis(p.axis, shape))

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        (shape,) = bottoms
        if not shape:
            raise ShapeError(f"expected a bottom of 1 or more axes, got {text(shape)}")
        a = self.attrs(shape)
        length = math.prod(shape[1:]) if a.axis is None else shape[a.axis]
        if a.top_k > length:
            raise ShapeError(f"top_k {a.top_k} exceeds the {length} elements of a row")
        if a.axis is not None:
            return [(*shape[: a.axis], a.top_k, *shape[a.axis + 1 :])]
        return [(shape[0], 2 if a.out_max_val else 1, a.top_k, *[1] * (len(shape) - 3))]

    def dtypes(self, bottoms: Sequence[str]) -> list[str]:
        return ["float32"]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), a = s.x, self.attrs(s.x[0].shape)
        rows = x
        if a.axis is None and len(x.shape) == 4:
            rows = other(s, x, (x.shape[0], math.prod(x.shape[1:])), "x.rows")
            yield from move(s, x, rows)
        yield s.op("argmax.forward", [rows], s.y, a, flops=a.top_k * x.size)

    def backward(self, s: Site) -> Iterable[Op]:
        raise ValueError(f"layer {self.name}: ArgMax has no gradient: no loss may depend on {self.spec.top[0]!r}")
