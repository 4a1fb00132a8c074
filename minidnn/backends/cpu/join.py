"""Concat and its backward (where no C compiler is), and Flatten: strided copies, by oneDNN's reorders."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cpu import dnnl as d
from minidnn.backends.cpu.elementwise import copy
from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.recipe import Recipe, Scratch, plain
from minidnn.backends.layout import contiguous, strides
from minidnn.program import Op, Tensor


class _Move:
    """Copies elements of one logical shape between two sets of strides."""

    def __init__(self, dnnl: d.Dnnl, shape: tuple[int, ...], source, target, scratch: Scratch) -> None:
        self.source, self.target = dnnl.desc(shape, source), dnnl.desc(shape, target)
        self.p = dnnl.reorder(self.source, self.target)
        self.pad = scratch.take(self.p.scratchpad)

    def bind(self, source: int, target: int, workspace: np.ndarray) -> d.Call:
        ends = {d.SRC: (self.source, source), d.DST: (self.target, target)}
        return self.p.bind(ends, self.pad.address(workspace))


def concat_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """x1 .. xn -> y"""
    starts, start = [], 0
    for x in op.reads:
        starts.append(start)
        start += x.shape[op.attrs.axis]
    (y,) = op.writes
    step = strides(y.shape)
    scratch = Scratch()
    moves = [_Move(dnnl, x.shape, strides(x.shape), step, scratch) for x in op.reads]
    offsets = _offsets(starts, step[op.attrs.axis], y)

    def bind(reads, writes, ws):
        target = address(writes[0])
        return [m.bind(address(x), target + at, ws) for m, x, at in zip(moves, reads, offsets, strict=True)]

    return [scratch.recipe("reorder", bind)]


def concat_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """dy -> dx_i .., from `starts`"""
    (dy,) = op.reads
    step = strides(dy.shape)
    scratch = Scratch()
    moves = [_Move(dnnl, dx.shape, step, strides(dx.shape), scratch) for dx in op.writes]
    offsets = _offsets(op.attrs.starts, step[op.attrs.axis], dy)

    def bind(reads, writes, ws):
        source = address(reads[0])
        return [m.bind(source + at, address(dx), ws) for m, dx, at in zip(moves, writes, offsets, strict=True)]

    return [scratch.recipe("reorder", bind)]


def _offsets(starts, stride: int, tensor: Tensor) -> list[int]:
    return [start * stride * np.dtype(tensor.dtype).itemsize for start in starts]


def flatten(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """The same elements in logical order: only a 4-D side lies in another order than it reads."""
    (x,), (y,) = op.reads, op.writes
    if (len(x.shape) == 4) == (len(y.shape) == 4):
        if len(x.shape) == 4 and x.shape != y.shape:
            return [plain(_between_images, "numpy")]
        return copy(dnnl, op)
    four = x.shape if len(x.shape) == 4 else y.shape
    ends = (strides(four), contiguous(four))
    scratch = Scratch()
    move = _Move(dnnl, four, *(ends if four == x.shape else ends[::-1]), scratch)
    return [scratch.recipe("reorder", lambda r, w, ws: [move.bind(address(r[0]), address(w[0]), ws)])]


def _between_images(reads, writes, _) -> list[d.Call]:
    """4-D to another 4-D shape, which no reorder expresses: element by element, without a buffer."""

    def call() -> None:
        writes[0].flat[:] = reads[0].flat

    return [call]


KINDS = {
    "concat.forward": concat_forward,
    "concat.backward": concat_backward,
    "flatten.forward": flatten,
    "flatten.backward": flatten,
}
