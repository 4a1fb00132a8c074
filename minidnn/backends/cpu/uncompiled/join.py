"""Concat, Slice, their backwards, Flatten and Reshape: strided copies, by oneDNN's reorders."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.onednn.elementwise import copy
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.backends.layout import contiguous, strides
from minidnn.backends.moves import gaps
from minidnn.program import Op, Tensor


class Move:
    """Copies elements of one logical shape from a layout to another, each given by its strides."""

    def __init__(self, dnnl: d.Dnnl, shape: tuple[int, ...], source, target, scratch: Scratch, dtype: str) -> None:
        self.source, self.target = dnnl.desc(shape, source, dtype), dnnl.desc(shape, target, dtype)
        self.p = dnnl.reorder(self.source, self.target)
        self.pad = scratch.take(self.p.scratchpad)

    def bind(self, source: int, target: int, workspace: np.ndarray) -> Call:
        ends = {d.SRC: (self.source, source), d.DST: (self.target, target)}
        return self.p.bind(ends, self.pad.address(workspace))


def concat_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> y, each of which begins at its place in `starts`; none if they do not cover y."""
    (y,) = op.writes
    if gaps(op.attrs, [x.shape[op.attrs.axis] for x in op.reads], y.shape):
        return []
    step = strides(y.shape)
    scratch = Scratch()
    moves = [Move(dnnl, x.shape, strides(x.shape), step, scratch, x.dtype) for x in op.reads]
    offsets = _offsets(op.attrs.starts, step[op.attrs.axis], y)

    def bind(reads, writes, ws):
        target = address(writes[0])
        return [m.bind(address(x), target + at, ws) for m, x, at in zip(moves, reads, offsets, strict=True)]

    return [scratch.recipe("reorder", bind)]


def concat_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for dy -> dx_i .., each of which begins at its place in `starts`."""
    (dy,) = op.reads
    step = strides(dy.shape)
    scratch = Scratch()
    moves = [Move(dnnl, dx.shape, step, strides(dx.shape), scratch, dx.dtype) for dx in op.writes]
    offsets = _offsets(op.attrs.starts, step[op.attrs.axis], dy)

    def bind(reads, writes, ws):
        source = address(reads[0])
        return [m.bind(source + at, address(dx), ws) for m, dx, at in zip(moves, writes, offsets, strict=True)]

    return [scratch.recipe("reorder", bind)]


def _offsets(starts, stride: int, tensor: Tensor) -> list[int]:
    """The starts along the axis as offsets in bytes."""
    return [start * stride * np.dtype(tensor.dtype).itemsize for start in starts]


def flatten(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x -> y, the same elements in logical order. Memory has them in another order only in a 4-D tensor,
    so elsewhere a plain copy will do. None from images to images of another shape."""
    (x,), (y,) = op.reads, op.writes
    if (len(x.shape) == 4) == (len(y.shape) == 4):
        return copy(dnnl, op) if len(x.shape) != 4 or x.shape == y.shape else []
    four = x.shape if len(x.shape) == 4 else y.shape
    ends = (strides(four), contiguous(four))
    scratch = Scratch()
    move = Move(dnnl, four, *(ends if four == x.shape else ends[::-1]), scratch, x.dtype)
    return [scratch.recipe("reorder", lambda r, w, ws: [move.bind(address(r[0]), address(w[0]), ws)])]


KINDS = {
    "concat.forward": concat_forward,
    "concat.backward": concat_backward,
    "flatten.forward": flatten,
    "flatten.backward": flatten,
}
