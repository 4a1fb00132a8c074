"""LayerNorm, RMSNorm, MVN and Normalize (kernels/row_norm.cu), along rows of any layout."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cuda.columns import partials, reducing
from minidnn.backends.cuda.recipe import (
    MOST_BLOCKS,
    Argument,
    Launch,
    Read,
    Recipe,
    Scratch,
    Space,
    Write,
    int32,
    plain,
)
from minidnn.backends.cuda.rows import shared
from minidnn.backends.rows import rows
from minidnn.program import Op

DIVISORS = ("VARIANCE", "DEVIATION", "NORM", "NONE")  # in the order of the enum of kernels/row_norm.cu


def _by_row(op: Op, kernel: str, shape: tuple[int, ...]) -> list[Recipe]:
    """The recipe of a kernel that takes all reads and writes in their order."""
    a = op.attrs
    g = shared(shape, a.first, a.last)
    ends: list[Argument] = [Read(i) for i in range(len(op.reads))]
    ends += [Write(i) for i in range(len(op.writes))]
    how = int32(a.centred), int32(DIVISORS.index(a.divisor)), np.float32(a.eps)
    return [plain(Launch("row_norm", kernel, (*ends, *how, *g.arguments), g.grid(MOST_BLOCKS)))]


def forward(op: Op) -> list[Recipe]:
    """One recipe for x (gamma beta) -> y (inverse) (mean)."""
    which = {1: "", 2: "_sized", 3: "_scaled"}[len(op.writes)]
    return _by_row(op, f"forward{which}", op.reads[0].shape)


def backward_data(op: Op) -> list[Recipe]:
    """One recipe for x dy inverse mean gamma -> dx, y dy inverse -> dx, or dy -> dx."""
    which = {1: "", 3: "_sized", 5: "_scaled"}[len(op.reads)]
    return _by_row(op, f"backward{which}", op.writes[0].shape)


def backward_filter(op: Op) -> list[Recipe]:
    """One recipe for x dy inverse mean -> dgamma dbeta."""
    r, given = rows(op.reads[0].shape, op.attrs.first, op.attrs.last), [Read(i) for i in range(4)]
    g = reducing((r.outer, r.length) if r.inner == 1 else (r.outer, r.length, r.inner))
    scratch, name, c = Scratch(), f"filter_{g.vector}", r.length
    if g.chunks == 1:
        arguments: tuple[Argument, ...] = (*given, Write(0), Write(1), int32(0), *g.arguments)
        return [scratch.recipe("default", Launch("row_norm", name, arguments, g.grid))]
    partial, last = scratch.take(g.chunks * 2 * c * 4), partials(g.chunks, 2 * c)
    halves = partial, Space(partial.offset + c * 4, partial.nbytes - c * 4)
    return [
        scratch.recipe(
            "default",
            Launch("row_norm", name, (*given, *halves, int32(2 * c), *g.arguments), g.grid),
            Launch("row_norm", "filter_finish", (partial, Write(0), Write(1), *last.arguments), last.grid),
        )
    ]


KINDS = {
    "row_norm.forward": forward,
    "row_norm.backward_data": backward_data,
    "row_norm.backward_filter": backward_filter,
}
