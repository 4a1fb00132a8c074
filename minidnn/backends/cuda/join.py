"""Concat, its backward, and Flatten: moves of elements (kernels/join.cu)."""

from __future__ import annotations

import math

import numpy as np

from minidnn.backends.cuda.elementwise import copy
from minidnn.backends.cuda.recipe import BLOCK, MOST_BLOCKS, Launch, Read, Recipe, Write, over, plain
from minidnn.program import Op, Tensor

TILE = 32  # side of a tile of the transposition


def concat_forward(op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> y."""
    (y,), start, launches = op.writes, 0, []
    for i, x in enumerate(op.reads):
        launches.append(_rows(op, x, y, start, Read(i), into=True))
        start += x.shape[op.attrs.axis]
    return [plain(*launches)]


def concat_backward(op: Op) -> list[Recipe]:
    """One recipe for dy -> dx_i .., each of which begins at its place in `starts`."""
    (dy,) = op.reads
    starts = zip(op.writes, op.attrs.starts, strict=True)
    return [plain(*(_rows(op, dx, dy, start, Write(i), into=False) for i, (dx, start) in enumerate(starts)))]


def _rows(op: Op, part: Tensor, whole: Tensor, start: int, at: Read | Write, into: bool) -> Launch:
    """The launch that moves a part's rows into the whole or out of it. A row is a run of memory: the axis with all axes
    that are inside it in memory."""
    axis = op.attrs.axis % len(part.shape)
    order = (0, 2, 3, 1) if len(part.shape) == 4 else tuple(range(len(part.shape)))
    place = order.index(axis)
    inner = math.prod(part.shape[i] for i in order[place + 1 :])
    rows = math.prod(part.shape[i] for i in order[:place])
    width, wide, offset = (n * inner for n in (part.shape[axis], whole.shape[axis], start))
    four = all(n % 4 == 0 for n in (width, wide, offset))
    apart = offset * whole.itemsize
    ends = (at, Write(0, apart)) if into else (Read(0, apart), at)
    strides = (width, wide) if into else (wide, width)
    numbers = (np.int64(n) for n in (rows, width, *strides))
    return Launch("join", "rows_4" if four else "rows_1", (*ends, *numbers), over(rows * width // (4 if four else 1)))


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
