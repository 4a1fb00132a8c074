"""Dropout: in TRAIN each value is zeroed with probability `ratio` and otherwise divided by 1 - ratio.

A function of (seed, iteration, layer, position) decides which values are zeroed. So no mask is stored: backward
computes it again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from minidnn.layers.base import Layer, Shape, Site
from minidnn.program import Op


@dataclass(frozen=True)
class DropoutAttrs:
    ratio: float
    seed: int
    key: int  # from the layer's name, so that two layers draw different numbers
    block: int = field(default=0, repr=False)  # of random numbers, with which x begins; costs do not depend on it


class Dropout(Layer):
    """Caffe's Dropout. In TEST y is x."""

    type = "Dropout"
    field_name = "dropout_param"
    in_place = True
    keeps_sign = True

    def attrs(self, s: Site) -> DropoutAttrs:
        return DropoutAttrs(self.param.dropout_ratio, s.seed, zlib.crc32(self.name.encode()))

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        return [bottoms[0]]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        if s.train:
            yield s.op("dropout.forward", [x, s.iteration], [y], self.attrs(s), [(x, y)], x.size)
        else:
            yield s.op("identity.forward", [x], [y], inplace=[(x, y)], flops=x.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (dy,), (dx,) = s.arriving, s.bottom_gradients
        yield s.op("dropout.backward", [dy, s.iteration], [dx], self.attrs(s), [(dy, dx)], dy.size)
