"""Concat and its backward: strided copies, by oneDNN's reorders."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.onednn.join import Move
from minidnn.backends.cpu.recipe import Recipe, Scratch
from minidnn.backends.layout import strides
from minidnn.program import Op, Tensor


def concat_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> y."""
    starts, start = [], 0
    for x in op.reads:
        starts.append(start)
        start += x.shape[op.attrs.axis]
    (y,) = op.writes
    step = strides(y.shape)
    scratch = Scratch()
    moves = [Move(dnnl, x.shape, strides(x.shape), step, scratch) for x in op.reads]
    offsets = _offsets(starts, step[op.attrs.axis], y)

    def bind(reads, writes, ws):
        target = address(writes[0])
        return [m.bind(address(x), target + at, ws) for m, x, at in zip(moves, reads, offsets, strict=True)]

    return [scratch.recipe("reorder", bind)]


def concat_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for dy -> dx_i .., each of which begins at its place in `starts`."""
    (dy,) = op.reads
    step = strides(dy.shape)
    scratch = Scratch()
    moves = [Move(dnnl, dx.shape, step, strides(dx.shape), scratch) for dx in op.writes]
    offsets = _offsets(op.attrs.starts, step[op.attrs.axis], dy)

    def bind(reads, writes, ws):
        source = address(reads[0])
        return [m.bind(source + at, address(dx), ws) for m, dx, at in zip(moves, writes, offsets, strict=True)]

    return [scratch.recipe("reorder", bind)]


def _offsets(starts, stride: int, tensor: Tensor) -> list[int]:
    """The starts along the axis as offsets in bytes."""
    return [start * stride * np.dtype(tensor.dtype).itemsize for start in starts]


KINDS = {"concat.forward": concat_forward, "concat.backward": concat_backward}
