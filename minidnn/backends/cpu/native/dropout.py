"""Dropout by Philox (dropout.c). Each pass computes the mask of backends/philox.py again."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from minidnn.backends import philox
from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.native.convert import format_of
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch, plain
from minidnn.program import Op


class Geometry(Mirrored):
    twin = "dropout"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("n", "c", "pixels", "block", "threads", "format")),
        *((name, ctypes.c_uint32) for name in ("seed_low", "seed_high", "key", "limit")),
        ("scale", ctypes.c_float),
    )


def recipes(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x iteration -> y, the same forward and backward; x and y may have 16 bits."""
    x = op.reads[0]
    n, c, pixels = (*x.shape[:2], math.prod(x.shape[2:])) if len(x.shape) == 4 else (1, x.size, 1)
    g, scratch = _geometry(native, op, n, c, pixels), Scratch()
    drops = scratch.take(x.size if pixels > 1 else 0)
    run = native.function("dropout" if x.dtype == "float32" else "dropout_half")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        x, iteration, y = (address(t) for t in (*reads, *writes))
        return [bound(run, g, x, iteration, y, drops.address(workspace))]

    return [scratch.recipe(NAME, bind)]


def factors(native: Native, op: Op) -> list[Recipe]:
    """One recipe for iteration -> y, what dropout makes of ones."""
    g, run = _geometry(native, op, 1, op.writes[0].size, 1), native.function("dropout_factors")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        return [bound(run, g, address(reads[0]), address(writes[0]))]

    return [plain(bind, NAME)]


def _geometry(native: Native, op: Op, n: int, c: int, pixels: int) -> Geometry:
    a = op.attrs
    seed = (a.seed & 0xFFFFFFFF, a.seed >> 32 & 0xFFFFFFFF, a.key & 0xFFFFFFFF)
    numbers = *seed, philox.threshold(a.ratio), 1 / (1 - a.ratio)
    return Geometry(n, c, pixels, a.block, native.threads, format_of(op), *numbers)


FIRST = {"dropout.forward": recipes, "dropout.backward": recipes, "dropout.factors": factors}
HALF = {"dropout.forward": recipes, "dropout.backward": recipes}
