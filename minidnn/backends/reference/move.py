"""Boxes, axes in another order, tiles, elements moved in a circle: Crop, Permute, Tile, Roll."""

from __future__ import annotations

import numpy as np

from minidnn.backends.reference.join import part


def crop_forward(a, reads, writes):
    """x -> y: the box of x that begins at `start`."""
    (x,), (y,) = reads, writes
    y[...] = x[box(a.start, y.shape)]


def crop_backward(a, reads, writes):
    """dy -> dx: dy in the box, else 0."""
    (dy,), (dx,) = reads, writes
    dx[...] = 0
    dx[box(a.start, dy.shape)] = dy


def box(start, shape):
    """The box of this shape that begins at `start`, as an index."""
    return tuple(slice(first, first + length) for first, length in zip(start, shape, strict=True))


def permute(a, reads, writes):
    """x -> y: axis i of y is axis order[i] of x."""
    writes[0][...] = reads[0].transpose(a.order)


def tile_forward(a, reads, writes):
    """x -> y: x several times along the axis."""
    (x,), (y,) = reads, writes
    for tile in tiles(a, y):
        tile[...] = x


def tile_backward(a, reads, writes):
    """dy -> dx: the sum of dy's tiles, from the first to the last."""
    (dy,), (dx,) = reads, writes
    first, *others = tiles(a, dy)
    dx[...] = sum(others, start=first)


def tiles(a, y):
    """The tiles of y: views."""
    length = y.shape[a.axis] // a.tiles
    return [part(y, a.axis, i * length, length) for i in range(a.tiles)]


def roll(a, reads, writes):
    """x -> y: place i of x is place i + shift of y, beyond the end from the begin on."""
    writes[0][...] = np.roll(reads[0], a.shift, a.axis)


KINDS = {
    "crop.forward": crop_forward,
    "crop.backward": crop_backward,
    "permute.forward": permute,
    "permute.backward": permute,
    "tile.forward": tile_forward,
    "tile.backward": tile_backward,
    "roll.forward": roll,
}
