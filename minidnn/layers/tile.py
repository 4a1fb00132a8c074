"""Tile: its bottom several times, one after another along an axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Shape, Site, positive_axis
from minidnn.layers.moving import Moving
from minidnn.program import Op


@dataclass(frozen=True)
class TileAttrs:
    axis: int
    tiles: int


class Tile(Moving):
    """Caffe's Tile. The gradient is the sum over the tiles, from the first to the last."""

    type = "Tile"
    field_name = "tile_param"

    def attrs(self, shape: Shape) -> TileAttrs:
        return TileAttrs(positive_axis(self.param.axis, shape), self.param.tiles)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        (shape,) = bottoms
        a = self.attrs(shape)
        return [(*shape[: a.axis], shape[a.axis] * a.tiles, *shape[a.axis + 1 :])]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        yield s.op("tile.forward", [x], [y], self.attrs(x.shape), flops=y.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (dy,), (dx,) = s.arriving, s.bottom_gradients
        yield s.op("tile.backward", [dy], [dx], self.attrs(dx.shape), flops=dy.size)
