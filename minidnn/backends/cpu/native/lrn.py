"""LRN across channels (lrn.c). Backward recomputes s from x, so it does not need y."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.program import Op


class Geometry(Mirrored):
    twin = "lrn"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("positions", "c", "size", "threads")),
        *((name, ctypes.c_float) for name in ("alpha", "beta", "k")),
    )


def recipes(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> y, or x (y) dy -> dx, which ignores y; none for LRN within a channel."""
    x, a = op.reads[0], op.attrs
    if a.region != "ACROSS_CHANNELS":
        return []
    n, c, h, w = x.shape
    g = Geometry(n * h * w, c, a.size, native.threads, a.alpha / a.size, a.beta, a.k)
    scratch = Scratch()
    rows = scratch.take(native.bytes("lrn_bytes", g))
    run = native.function(f"lrn_{op.kind.split('.')[1]}")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        read = (reads[0], reads[-1]) if len(reads) > 1 else reads
        return [bound(run, g, *(address(t) for t in (*read, *writes)), rows.address(workspace))]

    return [scratch.recipe(NAME, bind)]


FIRST = {"lrn.forward": recipes, "lrn.backward": recipes}
