"""Concat, Slice, their backwards, Flatten and Reshape (kernels/join.cu, and kernels/move.cu)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from minidnn.backends.cuda.elementwise import copy
from minidnn.backends.cuda.move import launch
from minidnn.backends.cuda.multi_tensor import batches, by_pieces
from minidnn.backends.cuda.recipe import Launch, Read, Recipe, Write, int32, over, plain
from minidnn.backends.layout import order
from minidnn.backends.moves import gaps, reshaped
from minidnn.program import Op, Tensor

PARTS = 100  # most tensors of a launch

Part = tuple[Read | Write, Tensor, int]  # a pointer to a part, the part, and where it begins along the axis


def concat_forward(op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> y, each of which begins at its place in `starts`; the rest of y becomes 0."""
    (y,), a = op.writes, op.attrs
    parts = [(Read(i), x, start) for i, (x, start) in enumerate(zip(op.reads, a.starts, strict=True))]
    lengths = [x.shape[a.axis] for x in op.reads]
    rest: list[Part] = [
        (Write(0), replace(y, shape=(*y.shape[: a.axis], length, *y.shape[a.axis + 1 :])), start)
        for start, length in gaps(a, lengths, y.shape)
    ]
    return [plain(*_launches(op, "into", parts), *_launches(op, "clear", rest))]


def concat_backward(op: Op) -> list[Recipe]:
    """One recipe for dy -> dx_i .., each of which begins at its place in `starts`."""
    starts = zip(op.writes, op.attrs.starts, strict=True)
    return [plain(*_launches(op, "out_of", [(Write(i), dx, at) for i, (dx, at) in enumerate(starts)]))]


def _launches(op: Op, kernel: str, parts: Sequence[Part]) -> list[Launch]:
    """The launches that move the parts' rows into the whole, or out of it, or that clear their places there. A row is a
    run of memory: the axis with all axes that are inside it in memory."""
    whole, at = (op.reads[0], Read(0)) if kernel == "out_of" else (op.writes[0], Write(0))
    axis, axes = op.attrs.axis, order(len(whole.shape))
    inner = math.prod(whole.shape[i] for i in axes[axes.index(axis) + 1 :])
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
        name = f"{kernel}_{4 if four else 1}"
        launches.append(by_pieces("join", name, PARTS, sized, columns, (), at, np.int64(wide)))
    return launches


def flatten(op: Op) -> list[Recipe]:
    """One recipe for x -> y, the same elements in logical order. Memory may have them in another."""
    (x,), (y,) = (t.shape for t in op.reads), (t.shape for t in op.writes)
    of = reshaped(x, y)
    if of is None:  # from images to images of which no axis is a part of another
        numbers = (np.int64(math.prod(y)), *(int32(n) for n in (*x[1:], *y[1:])))
        return [plain(Launch("join", "reshape", (Read(0), Write(0), *numbers), over(math.prod(y))))]
    return copy(op) if of.same else [plain(launch(of, math.prod(y)))]


KINDS = {
    "concat.forward": concat_forward,
    "concat.backward": concat_backward,
    "flatten.forward": flatten,
    "flatten.backward": flatten,
}
