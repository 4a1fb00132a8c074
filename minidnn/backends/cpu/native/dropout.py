"""Dropout by Philox (dropout.c). Each pass computes the mask of backends/philox.py again."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from minidnn.backends import philox
from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.program import Op


class Geometry(Mirrored):
    twin = "dropout"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("n", "c", "pixels", "threads")),
        *((name, ctypes.c_uint32) for name in ("seed_low", "seed_high", "key", "limit")),
        ("scale", ctypes.c_float),
    )


def recipes(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x iteration -> y, the same forward and backward."""
    x, a = op.reads[0], op.attrs
    n, c, pixels = (*x.shape[:2], math.prod(x.shape[2:])) if len(x.shape) == 4 else (1, x.size, 1)
    seed = (a.seed & 0xFFFFFFFF, a.seed >> 32 & 0xFFFFFFFF, a.key & 0xFFFFFFFF)
    g = Geometry(n, c, pixels, native.threads, *seed, philox.threshold(a.ratio), 1 / (1 - a.ratio))
    scratch = Scratch()
    drops = scratch.take(x.size if pixels > 1 else 0)
    run = native.function("dropout")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        x, iteration, y = (address(t) for t in (*reads, *writes))
        return [bound(run, g, x, iteration, y, drops.address(workspace))]

    return [scratch.recipe(NAME, bind)]


FIRST = {"dropout.forward": recipes, "dropout.backward": recipes}
