"""Concat, its backward, and Flatten: moves of elements (kernels/join.cu)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from minidnn.backends.cuda.each import batches, by_pieces
from minidnn.backends.cuda.elementwise import copy
from minidnn.backends.cuda.recipe import BLOCK, MOST_BLOCKS, Launch, Read, Recipe, Write, over, plain
from minidnn.program import Op, Tensor

PARTS = 100  # most tensors of a launch
TILE = 32  # side of a tile of the transposition


def concat_forward(op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> y."""
    starts = (0, *accumulate(x.shape[op.attrs.axis] for x in op.reads))[: len(op.reads)]
    return [_moves(op, "into", [(Read(i), x, at) for i, (x, at) in enumerate(zip(op.reads, starts, strict=True))])]


def concat_backward(op: Op) -> list[Recipe]:
    """One recipe for dy -> dx_i .., each of which begins at its place in `starts`."""
    starts = zip(op.writes, op.attrs.starts, strict=True)
    return [_moves(op, "out_of", [(Write(i), dx, at) for i, (dx, at) in enumerate(starts)])]


def _moves(op: Op, kernel: str, parts: Sequence[tuple[Read | Write, Tensor, int]]) -> Recipe:
    """The recipe that moves the parts' rows into the whole, or out of it: a pointer to each part, the part, and where
    it begins. A row is a run of memory: the axis with all axes that are inside it in memory."""
    whole, at = (op.writes[0], Write(0)) if kernel == "into" else (op.reads[0], Read(0))
    axis = op.attrs.axis % len(whole.shape)
    order = (0, 2, 3, 1) if len(whole.shape) == 4 else tuple(range(len(whole.shape)))
    inner = math.prod(whole.shape[i] for i in order[order.index(axis) + 1 :])
    wide = whole.shape[axis] * inner
    widths = [t.shape[axis] * inner for _, t, _ in parts]
    four = all(n % 4 == 0 for n in (wide, *widths, *(start * inner for _, _, start in parts)))
    launches = []
    for some in batches(range(len(parts)), PARTS):
        columns = (
            tuple(parts[i][0] for i in some),
            tuple(np.int64(widths[i]) for i in some),
            tuple(np.int64(parts[i][2] * inner) for i in some),
        )
        sized = [parts[i][1] for i in some]
        launches.append(
            by_pieces("join", f"{kernel}_{4 if four else 1}", PARTS, sized, columns, (), at, np.int64(wide))
        )
    return plain(*launches)


def flatten(op: Op) -> list[Recipe]:
    """One recipe for x -> y, the same elements in logical order. Memory has them in another order only in a 4-D tensor,
    so elsewhere a plain copy will do."""
    (x,), (y,) = (t.shape for t in op.reads), (t.shape for t in op.writes)
    if (_logical(x) and _logical(y)) or x == y:
        return copy(op)
    if len(x) == len(y) == 4:
        numbers = (np.int64(math.prod(y)), *(np.int32(n) for n in (*x[1:], *y[1:])))
        return [plain(Launch("join", "reshape", (Read(0), Write(0), *numbers), over(math.prod(y))))]
    n, c, h, w = x if len(x) == 4 else y
    rows, columns = (h * w, c) if len(x) == 4 else (c, h * w)
    tiles = n * -(-rows // TILE) * -(-columns // TILE)
    arguments = (Read(0), Write(0), np.int64(n), np.int32(rows), np.int32(columns))
    return [plain(Launch("join", "transpose", arguments, min(tiles, MOST_BLOCKS), BLOCK))]


def _logical(shape: tuple[int, ...]) -> bool:
    """Whether memory has the elements in logical order."""
    return len(shape) != 4 or shape[1] == 1 or shape[2] * shape[3] == 1


KINDS = {
    "concat.forward": concat_forward,
    "concat.backward": concat_backward,
    "flatten.forward": flatten,
    "flatten.backward": flatten,
}
