"""Sums of several tensors, alone or fused with a ReLU or its backward (elementwise.c, programs/fusion/sums.py)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, plain
from minidnn.backends.layout import channels_last
from minidnn.program import Op

MOST = 4  # tensors


class Geometry(Mirrored):
    twin = "elementwise"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("size", "count", "threads", "relu")),
        ("coefficients", ctypes.c_float * MOST),
    )


def _recipes(native: Native, op: Op, saved: int, coefficients: Sequence[float], relu: bool) -> list[Recipe]:
    """One recipe for (y) x1 .. xn -> y, none for more than MOST. `saved`: how many tensors precede the operands."""
    count = len(coefficients)
    g = Geometry(op.writes[0].size, count, native.threads, relu, (ctypes.c_float * MOST)(*coefficients[:MOST]))
    run = native.function("elementwise_sum")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        before, operands = [address(t) for t in reads[:saved]], [address(t) for t in reads[saved:]]
        return [bound(run, g, *(before or [0]), *operands, *[0] * (MOST - count), address(writes[0]))]

    return [plain(bind, NAME)] if 2 <= count <= MOST else []


def forward_relu(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> y: the sum with coefficients, then the ReLU."""
    return _recipes(native, op, 0, op.attrs.coeff, relu=True)


def total(native: Native, op: Op) -> list[Recipe]:
    """One recipe for dx1 .. dxn -> dx."""
    return _recipes(native, op, 0, [1.0] * len(op.reads), relu=False)


def total_relu(native: Native, op: Op) -> list[Recipe]:
    """One recipe for y dx1 .. dxn -> dx: the sum where y > 0, else 0."""
    return _recipes(native, op, 1, [1.0] * (len(op.reads) - 1), relu=False)


class SliceGeometry(Mirrored):
    twin = "elementwise_slice"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("rows", "c", "pitch", "threads"))


def add_slice(native: Native, op: Op) -> list[Recipe]:
    """One recipe for a b -> a + b, where a is a slice of a tensor with more channels; none if channels are not
    innermost."""
    (a, b), start = op.reads, 4 * op.attrs.start
    if not channels_last(b.shape):
        return []
    g = SliceGeometry(b.size // b.shape[1], b.shape[1], a.shape[1], native.threads)
    run = native.function("elementwise_add_slice")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        return [bound(run, g, address(reads[0]) + start, address(reads[1]), address(writes[0]))]

    return [plain(bind, NAME)]


FIRST = {
    "eltwise.forward_relu": forward_relu,
    "gradient.add_slice": add_slice,
    "gradient.sum": total,
    "gradient.sum_relu": total_relu,
}
