"""Bias gradients (bias.c), alone or fused with the ReLU's backward before them (programs/fusion/).

Rows are summed in pieces that depend on sizes alone, so the bits are the same for any number of threads."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.backends.layout import channels_last, channels_of_sum
from minidnn.program import Op, Slice


class Geometry(Mirrored):
    twin = "bias"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("rows", "c", "y_pitch", "dy_pitch", "threads"))


# The functions by the numbers of reads and writes: dy -> db; dy -> dx db; y dy -> dx db.
FUNCTIONS = {(1, 1): "bias_gradient", (1, 2): "bias_gradient_slice", (2, 2): "bias_gradient_relu"}


def recipes(native: Native, op: Op) -> list[Recipe]:
    """One recipe for (y) dy -> (dx) db, where y and dy may be slices; none if channels are not innermost."""
    shape = channels_of_sum(op)
    if not channels_last(shape):
        return []
    c = shape[1]
    sliced = isinstance(op.attrs, Slice)
    pitches = [t.shape[1] if sliced else c for t in op.reads]
    g = Geometry(math.prod(shape) // c, c, pitches[0], pitches[-1], native.threads)
    starts = [4 * op.attrs.start if sliced and t.shape != shape else 0 for t in op.reads]
    scratch = Scratch()
    sums = scratch.take(native.bytes("bias_bytes", g))
    run = native.function(FUNCTIONS[len(op.reads), len(op.writes)])

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        sources = (address(t) + start for t, start in zip(reads, starts, strict=True))
        return [bound(run, g, *sources, *map(address, writes), sums.address(workspace))]

    return [scratch.recipe(NAME, bind)]


FIRST = {
    "convolution.backward_bias": recipes,
    "inner_product.backward_bias": recipes,
    "scale.backward_bias": recipes,
    "relu.backward_bias": recipes,
    "relu.backward_bias_slice": recipes,
}
