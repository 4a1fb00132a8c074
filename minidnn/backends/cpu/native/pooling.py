"""Pooling (pooling.c), with the reference's choice among equal maxima, its NaN, and its divisor of an average."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, plain
from minidnn.program import Op, Tensor


class Geometry(Mirrored):
    twin = "pooling"

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("n", "c", "h", "w", "oh", "ow", "kh", "kw", "sh", "sw", "ph", "pw", "wide", "threads")
    )


def _geometry(native: Native, op: Op, x: Tensor, y: Tensor, index: Sequence[Tensor]) -> Geometry:
    a = op.attrs
    wide = any(t.dtype == "int32" for t in index)
    return Geometry(*x.shape, *y.shape[2:], *a.kernel, *a.stride, *a.pad, wide, native.threads)


def forward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> y (index)."""
    (x,), (y, *index) = op.reads, op.writes
    g = _geometry(native, op, x, y, index)
    largest = op.attrs.method == "MAX"
    run = native.function("pooling_maximum" if largest else "pooling_average")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        pointers = [address(t) for t in (*reads, *writes)]
        return [bound(run, g, *pointers, *([0] if largest and not index else []))]

    return [plain(bind, NAME)]


def backward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for (index (y)) dy -> dx; none if MAX's backward reads something other than the index."""
    (*saved, dy), (dx,) = op.reads, op.writes
    if op.attrs.method == "MAX" and op.attrs.saved != "index":
        return []
    g = _geometry(native, op, dx, dy, saved[:1])
    run = native.function("pooling_from_maxima" if saved else "pooling_from_averages")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        *known, dy = (address(t) for t in reads)
        without = [0] if len(known) == 1 else []  # a null y: no ReLU is fused
        return [bound(run, g, *known, *without, dy, address(writes[0]))]

    return [plain(bind, NAME)]


FIRST = {"pooling.forward": forward, "pooling.backward": backward, "pooling.backward_relu": backward}
