"""Eltwise: combines bottoms of one shape element by element: SUM with coefficients, PROD or MAX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Layer, Shape, ShapeError, Site, text
from minidnn.program import Op


@dataclass(frozen=True)
class EltwiseAttrs:
    operation: str  # "SUM" | "PROD" | "MAX"
    coeff: tuple[float, ...] = ()  # one per bottom, for SUM
    index: int | None = None  # in backward: the bottom whose gradient is computed


class Eltwise(Layer):
    """Caffe's Eltwise. The gradient of a bottom with coefficient 1 in a SUM is dy itself, without an op or a copy."""

    type = "Eltwise"
    field_name = "eltwise_param"
    bottoms = (2, None)
    in_place = True

    def attrs(self, index: int | None = None) -> EltwiseAttrs:
        p = self.param
        coeff = tuple(p.coeff) or (1.0,) * len(self.spec.bottom)
        return EltwiseAttrs(p.operation, coeff if p.operation == "SUM" else (), index)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        coeff, n = self.param.coeff, len(bottoms)
        if coeff and (len(coeff) != n or self.param.operation != "SUM"):
            raise ShapeError(
                f"expected {n} coeff for {n} bottoms of operation SUM, got {len(coeff)} for {self.param.operation}"
            )
        if self.param.operation == "MAX" and n > 256:
            raise ShapeError(f"MAX takes up to 256 bottoms, got {n}")
        for i, shape in enumerate(bottoms):
            if shape != bottoms[0]:
                raise ShapeError(
                    f"bottoms must have one shape; bottom {i} ({self.spec.bottom[i]}) is {text(shape)}, "
                    f"bottom 0 ({self.spec.bottom[0]}) {text(bottoms[0])}"
                )
        return [bottoms[0]]

    def forward(self, s: Site) -> Iterable[Op]:
        (y,), attrs = s.y, self.attrs()
        which = [_which(s)] if attrs.operation == "MAX" and s.train else []
        inplace = [(x, y) for x in dict.fromkeys(s.x)] if attrs.operation == "SUM" else []
        yield s.op("eltwise.forward", s.x, [y, *which], attrs, inplace, flops=len(s.x) * y.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (dy,) = s.arriving
        for i, dx in enumerate(s.dx):
            if dx is None:
                continue
            attrs = self.attrs(i)
            if attrs.operation == "SUM" and attrs.coeff[i] == 1 and s.facts.sum == "view":
                s.pass_through(i, dy)
                continue
            others = [x for k, x in enumerate(s.x) if k != i]
            saved = {"SUM": [], "PROD": others, "MAX": [_which(s)] if attrs.operation == "MAX" else []}
            reads = [*saved[attrs.operation], dy]
            yield s.op("eltwise.backward", reads, [dx], attrs, flops=dx.size, name=f"backward_{i}")


def _which(s):
    """The number of the bottom that each maximum comes from, uint8; where bottoms are equal, Caffe's choice."""
    return s.extra("which", s.y[0].shape, "uint8")
