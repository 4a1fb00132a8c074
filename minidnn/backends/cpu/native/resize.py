"""Images in another size (resize.c): bilinear between the corners, or the nearest pixel."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, plain
from minidnn.program import Op


class Geometry(Mirrored):
    twin = "resize"

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "n", "c", "h", "w", "oh", "ow",
            "step_h", "step_w", "over_h", "over_w", "begin_h", "begin_w", "last_h", "last_w", "whole", "threads",
        )
    )  # fmt: skip


def recipes(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> y, or for dy -> dx."""
    a, (x,), (y,) = op.attrs, op.reads, op.writes
    name = op.kind.replace(".", "_")
    if op.kind == "resize.backward":
        x, y = y, x
    whole = a.method == "NEAREST" or y.shape[2:] == a.size
    last = (begin + size - 1 for begin, size in zip(a.begin, a.size, strict=True))
    g = Geometry(*x.shape, *y.shape[2:], *a.step, *a.over, *a.begin, *last, whole, native.threads)
    run = native.function(name)

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        return [bound(run, g, address(reads[0]), address(writes[0]))]

    return [plain(bind, NAME)]


FIRST = {"resize.forward": recipes, "resize.backward": recipes}
