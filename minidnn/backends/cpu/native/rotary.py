"""RotaryEmbedding (rotary.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.program import Op


class Geometry(Mirrored):
    twin = "rotary"

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in ("samples", "tokens", "first", "width", "heads", "depth", "interleaved", "threads")
        ),
        *((name, ctypes.c_double) for name in ("base", "sign")),
    )


def recipes(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x (places) -> y, or for dy -> dx."""
    a, sign = op.attrs, 1 if op.kind == "rotary.forward" else -1
    sizes = op.reads[0].shape[0], a.tokens, a.first, a.width, a.heads, a.depth, a.interleaved
    g = Geometry(*sizes, native.threads, a.base, sign)
    scratch, run = Scratch(), native.function("rotary")
    space = scratch.take(native.bytes("rotary_bytes", g))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        places = address(reads[1]) if len(reads) > 1 else 0
        return [bound(run, g, address(reads[0]), places, address(writes[0]), space.address(workspace))]

    return [scratch.recipe(NAME, bind)]


FIRST = {"rotary.forward": recipes, "rotary.backward": recipes}
