"""Pooling by oneDNN on NHWC tensors.

MAX: our index tensor is the library's own workspace. For each output, in the order of y, it has the maximum's position
in the unclipped window, as a byte (or an int32 for large windows). The types are compared when a recipe is made. The
library ignores NaN, so a run that has diverged would train on with a loss that looks right. So the result is checked.
AVE: Caffe divides by the window clipped to the padded image, oneDNN by the whole kernel. They differ only where ceil
mode lets a window reach over the padding; those rows and columns are rescaled.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from minidnn.backends import reference
from minidnn.backends.cpu.layout import address, flat, physical
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.backends.layout import strides
from minidnn.program import Op

LOWEST = np.finfo(np.float32).min  # the library's max pooling begins with this instead of -inf


class Geometry:
    def __init__(self, dnnl: d.Dnnl, attrs, x: tuple[int, ...], y: tuple[int, ...]) -> None:
        self.shape = y
        self.x, self.y = dnnl.desc(x, strides(x)), dnnl.desc(y, strides(y))
        self.algorithm = d.POOLING_MAX if attrs.method == "MAX" else d.POOLING_AVERAGE
        over = [_overhang(*axis) for axis in zip(x[2:], y[2:], attrs.kernel, attrs.stride, attrs.pad, strict=True)]
        self.window = (
            d.Dims(*attrs.stride), d.Dims(*attrs.kernel), d.Dims(0, 0), d.Dims(*attrs.pad), d.Dims(*over)
        )  # fmt: skip
        # (axis of the NHWC array, position, kernel / clipped window) where they differ
        self.rescaled = [
            (axis, i, k / clipped)
            for axis, (h, o, k, s, p) in enumerate(
                zip(x[2:], y[2:], attrs.kernel, attrs.stride, attrs.pad, strict=True), start=1
            )
            for i in range(max(0, (h + 2 * p - k) // s), o)  # earlier windows lie wholly inside
            if (clipped := min(i * s - p + k, h + p) - (i * s - p)) != k
        ]

    def forward(self, dnnl: d.Dnnl, prop: int) -> d.Primitive:
        return dnnl.best("pooling_forward", prop, self.algorithm, self.x, self.y, *self.window, dnnl.attr)

    def backward(self, dnnl: d.Dnnl) -> d.Primitive:
        hint = self.forward(dnnl, d.TRAINING).pd
        return dnnl.best("pooling_backward", self.algorithm, self.x, self.y, *self.window, hint, dnnl.attr)

    def line_nbytes(self) -> int:
        """The workspace of `rescale` in bytes: its longest line."""
        n, c, *size = self.shape
        return max((n * c * size[2 - axis] * 4 for axis, _, _ in self.rescaled), default=0)

    def rescale(self, y: np.ndarray, line: np.ndarray) -> list[Call]:
        """Steps that multiply each line in `rescaled` by kernel / clipped window, in place."""
        steps: list[Call] = []
        for axis, i, factor in self.rescaled:
            there = physical(y)[(slice(None),) * axis + (i,)]
            here = line[: there.size]  # a ufunc on strided operands would allocate buffers; a copy does not
            steps += [
                partial(np.copyto, here.reshape(there.shape), there),
                partial(np.multiply, here, np.float32(factor), out=here),
                partial(np.copyto, there, here.reshape(there.shape)),
            ]
        return steps


def _overhang(h: int, o: int, k: int, s: int, p: int) -> int:
    """The right padding with which oneDNN makes o outputs: it rounds their number down."""
    return max((o - 1) * s + k - h - p, 0)


def forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x -> y (index); none if the library's index has another type."""
    (x,), (y, *index) = op.reads, op.writes
    g = Geometry(dnnl, op.attrs, x.shape, y.shape)
    p = g.forward(dnnl, d.TRAINING if index else d.INFERENCE)
    if index and not dnnl.equal(p.desc(d.WORKSPACE), dnnl.desc(y.shape, strides(y.shape), index[0].dtype)):
        return []  # the library changes to int32 at a window of 255 places, we at 257
    average = g.algorithm == d.POOLING_AVERAGE
    scratch = Scratch()
    pad, line = scratch.take(p.scratchpad), scratch.take(g.line_nbytes() if average else 0)

    def bind(reads, writes, workspace):
        arguments = {d.SRC: (g.x, address(reads[0])), d.DST: (g.y, address(writes[0]))}
        if index:
            arguments[d.WORKSPACE] = (p.desc(d.WORKSPACE), address(writes[1]))
        pool = p.bind(arguments, pad.address(workspace))
        if not average:
            return [_unhidden(op.attrs, reads, writes, pool)]
        return [pool, *g.rescale(writes[0], line.array(workspace))]

    return [scratch.recipe("nhwc", bind)]


def _unhidden(attrs, reads, writes, fast: Call) -> Call:
    """A call of `fast`; then of the reference's kernel, if x has a NaN or a window of nothing but -inf."""
    x, y = flat(reads[0]), flat(writes[0])
    slow = partial(reference.KERNELS["pooling.forward"], attrs, list(reads), list(writes))

    def call() -> None:
        fast()
        with np.errstate(invalid="ignore"):
            hides = math.isnan(np.maximum.reduce(x)) or np.minimum.reduce(y) <= LOWEST
        if hides:
            slow()

    return call


def backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for (index) dy -> dx; none if MAX's backward reads something else, or the library's index has another
    type."""
    (*saved, dy), (dx,) = op.reads, op.writes
    if op.attrs.method == "MAX" and op.attrs.saved != "index":
        return []
    g = Geometry(dnnl, op.attrs, dx.shape, dy.shape)
    p = g.backward(dnnl)
    if saved and not dnnl.equal(p.desc(d.WORKSPACE), dnnl.desc(dy.shape, strides(dy.shape), saved[0].dtype)):
        return []
    rescaled = not saved and bool(g.rescaled)
    scratch = Scratch()
    pad = scratch.take(p.scratchpad)
    scaled, line = (scratch.take(n if rescaled else 0) for n in (dy.nbytes, g.line_nbytes()))

    def bind(reads, writes, workspace):
        dy = reads[-1]
        steps: list[Call] = []
        if rescaled:
            nhwc = scaled.array(workspace).reshape(physical(dy).shape)
            steps.append(partial(np.copyto, nhwc, physical(dy)))
            dy = nhwc.transpose(0, 3, 1, 2)
            steps += g.rescale(dy, line.array(workspace))
        arguments = {d.DIFF_DST: (g.y, address(dy)), d.DIFF_SRC: (g.x, address(writes[0]))}
        if saved:
            arguments[d.WORKSPACE] = (p.desc(d.WORKSPACE), address(reads[0]))
        return [*steps, p.bind(arguments, pad.address(workspace))]

    return [scratch.recipe("nhwc", bind)]


KINDS = {"pooling.forward": forward, "pooling.backward": backward}
