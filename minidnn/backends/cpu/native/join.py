"""Concat and its backward (join.c): copies rows of each part to, or from, rows of the whole."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, plain
from minidnn.program import Op, Tensor


class Geometry(Mirrored):
    twin = "join"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("rows", "width", "from_", "to", "threads"))


def forward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> y; none unless all are float32."""
    (y,) = op.writes
    run = native.function("join_rows")
    parts, at = [], 0
    for x in op.reads:
        rows, width = _rows(x, op.attrs.axis)
        parts.append((Geometry(rows, width, width, _rows(y, op.attrs.axis)[1], native.threads), at))
        at += width * FLOAT

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        whole = address(writes[0])
        return [bound(run, g, address(x), whole + at) for (g, at), x in zip(parts, reads, strict=True)]

    return [plain(bind, NAME)] if _floats(op) else []


def backward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for dy -> dx_i .., each of which begins at its place in `starts`; none unless all are float32."""
    (dy,), axis = op.reads, op.attrs.axis
    run = native.function("join_rows")
    parts = []
    for dx, start in zip(op.writes, op.attrs.starts, strict=True):
        rows, width = _rows(dx, axis)
        at = start * (width // dx.shape[axis]) * FLOAT
        parts.append((Geometry(rows, width, _rows(dy, axis)[1], width, native.threads), at))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        whole = address(reads[0])
        return [bound(run, g, whole + at, address(dx)) for (g, at), dx in zip(parts, writes, strict=True)]

    return [plain(bind, NAME)] if _floats(op) else []


FLOAT = 4  # bytes


def _floats(op: Op) -> bool:
    return all(t.dtype == "float32" for t in op.tensors)


def _rows(tensor: Tensor, axis: int) -> tuple[int, int]:
    """(number of runs of memory that the tensor is in a join along this axis, elements of a run)"""
    order = (0, 2, 3, 1) if len(tensor.shape) == 4 else tuple(range(len(tensor.shape)))
    lying = [tensor.shape[i] for i in order]
    before = order.index(axis % len(order))
    return math.prod(lying[:before]), math.prod(lying[before:])


FIRST = {"concat.forward": forward, "concat.backward": backward}
