"""Concat, Slice and their backwards (join.c): copies rows of each part to, or from, rows of the whole. Flatten and
Reshape (join.c, and move.c)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.native.move import by_loops
from minidnn.backends.cpu.recipe import Call, Recipe, plain
from minidnn.backends.layout import order
from minidnn.backends.moves import gaps, reshaped
from minidnn.program import Op, Tensor

NUMBER = 4  # bytes of a number, be it float32 or int32


class Geometry(Mirrored):
    twin = "join"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("rows", "width", "from_", "to", "threads"))


class Images(Mirrored):
    twin = "join_images"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("size", "xc", "xh", "xw", "yc", "yh", "yw", "threads"))


def forward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> y, each of which begins at its place in `starts`; the rest of y becomes 0."""
    (y,), axis = op.writes, op.attrs.axis
    run = native.function("join_rows")
    rows, wide = _rows(y, axis)
    one = wide // y.shape[axis]  # elements of a row at one place of the axis
    lengths = [x.shape[axis] for x in op.reads]
    parts = [
        (Geometry(rows, length * one, length * one, wide, native.threads), start * one * NUMBER)
        for start, length in (*zip(op.attrs.starts, lengths, strict=True), *gaps(op.attrs, lengths, y.shape))
    ]

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        whole, sources = address(writes[0]), [address(x) for x in reads] + [0] * (len(parts) - len(reads))
        return [bound(run, g, x, whole + at) for (g, at), x in zip(parts, sources, strict=True)]

    return [plain(bind, NAME)]


def backward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for dy -> dx_i .., each of which begins at its place in `starts`."""
    (dy,), axis = op.reads, op.attrs.axis
    run = native.function("join_rows")
    parts = []
    for dx, start in zip(op.writes, op.attrs.starts, strict=True):
        rows, width = _rows(dx, axis)
        at = start * (width // dx.shape[axis]) * NUMBER
        parts.append((Geometry(rows, width, _rows(dy, axis)[1], width, native.threads), at))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        whole = address(reads[0])
        return [bound(run, g, whole + at, address(dx)) for (g, at), dx in zip(parts, writes, strict=True)]

    return [plain(bind, NAME)]


def _rows(tensor: Tensor, axis: int) -> tuple[int, int]:
    """(number of runs of memory that the tensor is in a join along this axis, elements of a run)"""
    axes = order(len(tensor.shape))
    lying = [tensor.shape[i] for i in axes]
    before = axes.index(axis)
    return math.prod(lying[:before]), math.prod(lying[before:])


def flatten(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> y, the same elements in logical order. It does nothing if they are the same bytes."""
    (x,), (y,) = op.reads, op.writes
    of = reshaped(x.shape, y.shape)
    if of is None:  # from images to images of which no axis is a part of another
        g, run = Images(y.size, *x.shape[1:], *y.shape[1:], native.threads), native.function("join_images")
        return [plain(lambda reads, writes, _: [bound(run, g, address(reads[0]), address(writes[0]))], NAME)]
    moved = by_loops(native, of, y.size)
    return [plain(lambda r, w, ws: [] if address(r[0]) == address(w[0]) else moved.bind(r, w, ws), NAME)]


FIRST = {
    "concat.forward": forward,
    "concat.backward": backward,
    "flatten.forward": flatten,
    "flatten.backward": flatten,
}
