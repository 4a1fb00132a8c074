"""Dropout: a mask of zeros drawn anew each iteration; what stays is scaled by 1 / (1 - ratio)."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from minidnn.layers.base import Layer


@dataclass(frozen=True)
class DropoutAttrs:
    """The mask is a function of (seed, key, iteration, element): nothing is stored, recomputation repeats it."""

    ratio: float
    seed: int
    key: int


class Dropout(Layer):
    """Caffe's Dropout: active in TRAIN, the identity in TEST."""

    type = "Dropout"
    field_name = "dropout_param"
    in_place = True

    def shapes(self, bottoms):
        return [bottoms[0]]

    @property
    def ratio(self):
        return self.param.dropout_ratio if self.phase == "TRAIN" else 0.0

    def attrs(self, s):
        return DropoutAttrs(self.ratio, s.seed, crc32(self.name.encode()))

    def forward(self, s):
        (x,), (y,) = s.x, s.y
        if self.ratio == 0:
            yield s.op("identity.forward", [x], [y], inplace=[(x, y)])
        else:
            yield s.op("dropout.forward", [x, s.iteration], [y], self.attrs(s), inplace=[(x, y)], flops=x.size)

    def backward(self, s):
        (dy,), (dx,) = s.dy, s.dx
        if self.ratio == 0:
            s.pass_through(0, dy)
        else:
            yield s.op("dropout.backward", [dy, s.iteration], [dx], self.attrs(s), inplace=[(dy, dx)], flops=dx.size)
