"""Products of pairs of matrices (matmul.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.program import Op


class Geometry(Mirrored):
    twin = "matmul"

    _fields_ = (
        *((n, ctypes.c_int64) for n in ("batch", "rows", "depth", "columns", "turned_a", "turned_b", "threads")),
        ("scale", ctypes.c_double),
    )


def forward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for a b (bias) -> y."""
    a = op.attrs
    g = Geometry(a.batch, a.rows, a.depth, a.columns, a.transpose_a, a.transpose_b, native.threads, a.scale)
    run = native.function("matmul_forward")
    scratch = Scratch()
    panels = scratch.take(native.bytes("matmul_bytes", g))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        left, right, *bias = map(address, reads)
        return [bound(run, g, left, right, *(bias or [0]), address(writes[0]), panels.address(workspace))]

    return [scratch.recipe(NAME, bind)]


FIRST = {"matmul.forward": forward}
