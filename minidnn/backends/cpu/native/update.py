"""SGD (update.c): one pass over the weights, where NumPy makes eight."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native import rules
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, plain
from minidnn.program import Op


class Geometry(Mirrored):
    twin = "sgd"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("size", "threads", "regularization")),
        *((name, ctypes.c_float) for name in ("decay", "momentum", "scale", "lr_mult")),
    )


def sgd_update(native: Native, op: Op) -> list[Recipe]:
    """One recipe for w dw rate objective (h) (clip) -> w (h)."""
    a = op.attrs
    regularization = rules.REGULARIZATIONS[a.regularization if a.decay else None]
    g = Geometry(op.reads[0].size, native.threads, regularization, a.decay, a.momentum, a.scale, a.lr_mult)
    run = native.function("update_sgd")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        w, dw, rate, objective, *rest = (address(t) for t in reads)
        h, clip = rest[0] if a.momentum else 0, rest[-1] if a.clipped else 0
        return [bound(run, g, w, dw, h, rate, objective, clip)]

    return [plain(bind, NAME)]


FIRST = {"sgd.update": sgd_update}
