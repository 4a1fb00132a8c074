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
from minidnn.backends.layout import channels_last
from minidnn.program import Op


class Geometry(Mirrored):
    twin = "bias"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("rows", "c", "threads"))


def recipes(native: Native, op: Op) -> list[Recipe]:
    """One recipe for dy -> db, or for y dy -> dx db; none if channels are not innermost."""
    shape = op.reads[0].shape
    if not channels_last(shape):
        return []
    g = Geometry(math.prod(shape) // shape[1], shape[1], native.threads)
    scratch = Scratch()
    sums = scratch.take(native.bytes("bias_bytes", g))
    run = native.function("bias_gradient" if len(op.reads) == 1 else "bias_gradient_relu")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        return [bound(run, g, *(address(t) for t in (*reads, *writes)), sums.address(workspace))]

    return [scratch.recipe(NAME, bind)]


FIRST = {
    "convolution.backward_bias": recipes,
    "inner_product.backward_bias": recipes,
    "scale.backward_bias": recipes,
    "relu.backward_bias": recipes,
}
