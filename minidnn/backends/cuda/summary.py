"""Reduction and ArgMax (kernels/summary.cu), along rows of any layout."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cuda.recipe import MOST_BLOCKS, Launch, Read, Recipe, Write, int32, over, plain
from minidnn.backends.cuda.rows import divided, shared
from minidnn.backends.rows import places_of_largest, rows
from minidnn.program import Op

OPERATIONS = ("SUM", "ASUM", "SUMSQ")  # in the order of the enum of kernels/summary.cu


def reduction_forward(op: Op) -> list[Recipe]:
    """One recipe for x -> y."""
    a, shape = op.attrs, op.reads[0].shape
    g = shared(shape, a.axis, len(shape))
    how = int32(OPERATIONS.index(a.operation)), np.float32(a.coeff)
    return [plain(Launch("summary", "sum", (Read(0), Write(0), *how, *g.arguments), g.grid(MOST_BLOCKS)))]


def reduction_backward(op: Op) -> list[Recipe]:
    """One recipe for dy -> dx, or x dy -> dx."""
    a, shape = op.attrs, op.writes[0].shape
    r, n = rows(shape, a.axis, len(shape)), op.writes[0].size
    ends = Read(0), Read(len(op.reads) - 1), Write(0)
    how = int32(OPERATIONS.index(a.operation)), np.float32(a.coeff)
    sizes = np.int64(n), np.int64(r.inner), int32(r.length)
    return [plain(Launch("summary", "sum_gradient", (*ends, *how, *sizes), over(n)))]


def argmax(op: Op) -> list[Recipe]:
    """One recipe for x -> y."""
    r, wanted = places_of_largest(op)
    g = divided(r)
    how = int32(op.attrs.top_k), int32(wanted.place), int32(wanted.value)
    apart = np.int64(wanted.along), np.int64(wanted.apart)
    return [plain(Launch("summary", "largest", (Read(0), Write(0), *how, *apart, *g.arguments), g.grid(MOST_BLOCKS)))]


KINDS = {"reduction.forward": reduction_forward, "reduction.backward": reduction_backward, "argmax.forward": argmax}
