"""LRN by oneDNN with channels innermost, and within channels by its pooling and NumPy.

LRN's backward reads x only: it repeats the library's forward, chunk by chunk, for the workspace that the library's
backward wants.
"""

from __future__ import annotations

import ctypes
from functools import partial

import numpy as np

from minidnn.backends.cpu import dnnl as d
from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.recipe import Recipe, Scratch
from minidnn.backends.layout import strides
from minidnn.program import Op

_f = ctypes.c_float
CHUNK = 1 << 18  # elements of x that LRN's backward takes at a time


# LRN across channels


def lrn_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    (x,), a = op.reads, op.attrs
    if len(x.shape) != 4:
        return None
    if a.region == "WITHIN_CHANNEL":
        return _within_forward(dnnl, op)
    desc = dnnl.desc(x.shape, strides(x.shape))
    p = dnnl.best("lrn_forward", d.INFERENCE, d.LRN_ACROSS, desc, desc, *_lrn(a), dnnl.attr)
    scratch = Scratch()
    pad = scratch.take(p.scratchpad)

    def bind(reads, writes, ws):
        arguments = {d.SRC: (desc, address(reads[0])), d.DST: (desc, address(writes[0]))}
        return [p.bind(arguments, pad.address(ws))]

    return [scratch.recipe("nhwc", bind)]


def _lrn(a) -> tuple:
    return ctypes.c_int64(a.size), _f(a.alpha), _f(a.beta), _f(a.k)


def lrn_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    x, a = op.reads[0], op.attrs
    if len(x.shape) != 4:
        return None
    if a.region == "WITHIN_CHANNEL":
        return _within_backward(dnnl, op)
    n, c, h, w = x.shape
    positions = n * h * w
    chunk = min(positions, max(1, CHUNK // c))
    lengths = {chunk, positions % chunk} - {0}
    passes = {length: _LrnChunk(dnnl, a, c, length) for length in lengths}
    scratch = Scratch()
    y, kept, pad = (scratch.take(max(getattr(p, need) for p in passes.values())) for need in ("y", "kept", "pad"))

    def bind(reads, writes, ws):
        given, dy, dx = address(reads[0]), address(reads[-1]), address(writes[0])
        steps: list[d.Call] = []
        for start in range(0, positions, chunk):
            length, at = min(chunk, positions - start), start * c * 4
            places = (given + at, dy + at, dx + at, y.address(ws), kept.address(ws), pad.address(ws))
            steps += passes[length].bind(*places)
        return steps

    return [scratch.recipe("nhwc", bind)]


class _LrnChunk:
    """Forward and backward over `length` positions."""

    def __init__(self, dnnl: d.Dnnl, a, c: int, length: int) -> None:
        shape = (1, c, length, 1)
        self.desc = x = dnnl.desc(shape, strides(shape))
        self.forward = f = dnnl.best("lrn_forward", d.TRAINING, d.LRN_ACROSS, x, x, *_lrn(a), dnnl.attr)
        self.backward = b = dnnl.best("lrn_backward", d.LRN_ACROSS, x, x, x, *_lrn(a), f.pd, dnnl.attr)
        self.y, self.kept, self.pad = x.nbytes, b.desc(d.WORKSPACE).nbytes, max(f.scratchpad, b.scratchpad)

    def bind(self, x: int, dy: int, dx: int, y: int, kept: int, pad: int) -> list[d.Call]:
        workspace = {d.WORKSPACE: (self.backward.desc(d.WORKSPACE), kept)} if self.kept else {}
        once = {d.SRC: (self.desc, x), d.DST: (self.desc, y), **workspace}
        back = {d.SRC: (self.desc, x), d.DIFF_DST: (self.desc, dy), d.DIFF_SRC: (self.desc, dx), **workspace}
        # The slow implementation keeps nothing, and then there is nothing to repeat.
        return ([self.forward.bind(once, pad)] if self.kept else []) + [self.backward.bind(back, pad)]


# LRN within a channel: y = x s^-beta with s = 1 + alpha * average of x^2 over a window, an image at a time


class _Within:
    """One image's average over n x n windows of stride 1; its own adjoint, n being odd."""

    def __init__(self, dnnl: d.Dnnl, a, shape: tuple[int, ...]) -> None:
        image = (1, *shape[1:])
        self.desc = dnnl.desc(image, strides(image))
        ones, zeros, pad = d.Dims(1, 1), d.Dims(0, 0), d.Dims((a.size - 1) // 2, (a.size - 1) // 2)
        self.p = dnnl.best(
            "pooling_forward", d.INFERENCE, d.POOLING_AVERAGE, self.desc, self.desc,
            ones, d.Dims(a.size, a.size), zeros, pad, pad, dnnl.attr,
        )  # fmt: skip

    def average(self, source: np.ndarray, target: np.ndarray, pad: int) -> d.Call:
        return self.p.bind({d.SRC: (self.desc, address(source)), d.DST: (self.desc, address(target))}, pad)

    def sum(self, x: np.ndarray, s: np.ndarray, square: np.ndarray, alpha: float, pad: int) -> list[d.Call]:
        return [
            partial(np.multiply, x, x, out=square),
            self.average(square, s, pad),
            partial(np.multiply, s, np.float32(alpha), out=s),
            partial(np.add, s, np.float32(1), out=s),
        ]


def _images(array: np.ndarray) -> np.ndarray:
    return flat(array).reshape(array.shape[0], -1)


def _within_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    x, a = op.reads[0], op.attrs
    within = _Within(dnnl, a, x.shape)
    scratch = Scratch()
    pad, *pieces = scratch.take(within.p.scratchpad), *(scratch.take(x.nbytes // x.shape[0]) for _ in range(2))

    def bind(reads, writes, ws):
        s, t = (piece.array(ws) for piece in pieces)
        steps: list[d.Call] = []
        for x, y in zip(_images(reads[0]), _images(writes[0]), strict=True):
            steps += within.sum(x, s, t, a.alpha, pad.address(ws))
            steps += [partial(np.power, s, np.float32(-a.beta), out=t), partial(np.multiply, x, t, out=y)]
        return steps

    return [scratch.recipe("pooling", bind)]


def _within_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """dx = dy s^-beta - 2 alpha beta x average(dy x s^(-beta-1))"""
    x, a = op.reads[0], op.attrs
    within = _Within(dnnl, a, x.shape)
    scratch = Scratch()
    pad, *pieces = scratch.take(within.p.scratchpad), *(scratch.take(x.nbytes // x.shape[0]) for _ in range(3))

    def bind(reads, writes, ws):
        s, t, u = (piece.array(ws) for piece in pieces)
        steps: list[d.Call] = []
        for x, dy, dx in zip(_images(reads[0]), _images(reads[-1]), _images(writes[0]), strict=True):
            steps += within.sum(x, s, t, a.alpha, pad.address(ws))
            steps += [
                partial(np.power, s, np.float32(-a.beta), out=t),
                partial(np.multiply, dy, t, out=t),
                partial(np.divide, t, s, out=u),
                partial(np.multiply, u, x, out=u),
                within.average(u, s, pad.address(ws)),
                partial(np.multiply, s, x, out=s),
                partial(np.multiply, s, np.float32(2 * a.alpha * a.beta), out=s),
                partial(np.subtract, t, s, out=dx),
            ]
        return steps

    return [scratch.recipe("pooling", bind)]


KINDS = {"lrn.forward": lrn_forward, "lrn.backward": lrn_backward}
