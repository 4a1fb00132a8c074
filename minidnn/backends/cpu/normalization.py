"""LRN, batch normalization and Scale's gamma, by oneDNN with channels innermost.

LRN's backward reads x only: it repeats the library's forward, chunk by chunk, for the workspace that the
library's backward wants.
"""

from __future__ import annotations

import ctypes
from functools import partial

import numpy as np

from minidnn.backends.cpu import dnnl as d
from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.recipe import Recipe, Scratch
from minidnn.backends.layout import channels_last, four, strides
from minidnn.program import Op, Tensor

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


# Batch normalization


class _BatchNorm:
    def __init__(self, dnnl: d.Dnnl, x: Tensor, eps: float) -> None:
        shape = four(x.shape)
        self.dnnl = dnnl
        self.x, self.c = dnnl.desc(shape, strides(shape)), dnnl.desc((shape[1],))
        self.eps = _f(eps)

    def forward(self, prop: int, flags: int) -> d.Primitive:
        return self.dnnl.best(
            "batch_normalization_forward", prop, self.x, self.x, self.eps, ctypes.c_uint(flags), self.dnnl.attr
        )

    def backward(self) -> d.Primitive:
        hint = self.forward(d.TRAINING, 0).pd
        return self.dnnl.best(
            "batch_normalization_backward", d.BACKWARD, self.x, self.x, self.x, self.eps, ctypes.c_uint(0),
            hint, self.dnnl.attr,
        )  # fmt: skip

    def arguments(self, **places: np.ndarray) -> dict[int, tuple[d.Desc, int]]:
        which = {"x": d.SRC, "y": d.DST, "mean": d.MEAN, "variance": d.VARIANCE, "dy": d.DIFF_DST, "dx": d.DIFF_SRC}
        return {
            which[name]: (self.c if name in ("mean", "variance") else self.x, address(array))
            for name, array in places.items()
        }


def batch_norm_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    """x -> y mean variance"""
    if not channels_last(op.reads[0].shape):
        return None
    g = _BatchNorm(dnnl, op.reads[0], op.attrs.eps)
    p = g.forward(d.TRAINING, 0)
    scratch = Scratch()
    pad = scratch.take(p.scratchpad)

    def bind(reads, writes, ws):
        y, mean, variance = writes
        return [p.bind(g.arguments(x=reads[0], y=y, mean=mean, variance=variance), pad.address(ws))]

    return [scratch.recipe("nhwc", bind)]


def batch_norm_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    """x mean variance dy -> dx"""
    if not channels_last(op.reads[0].shape):
        return None
    g = _BatchNorm(dnnl, op.reads[0], op.attrs.eps)
    p = g.backward()
    scratch = Scratch()
    pad = scratch.take(p.scratchpad)

    def bind(reads, writes, ws):
        x, mean, variance, dy = reads
        arguments = g.arguments(x=x, mean=mean, variance=variance, dy=dy, dx=writes[0])
        return [p.bind(arguments, pad.address(ws))]

    return [scratch.recipe("nhwc", bind)]


def batch_norm_statistics(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """sums = fraction * sums + new; the variance enters unbiased"""
    a = op.attrs
    unbiased = np.float32(a.count / (a.count - 1) if a.count > 1 else 1.0)
    fraction = np.float32(a.fraction)
    scratch = Scratch()
    piece = scratch.take(op.reads[0].nbytes)

    def bind(reads, writes, ws):
        mean, variance, mean_sum, variance_sum, factor = map(flat, reads)
        t = piece.array(ws)
        return [
            partial(np.multiply, factor, fraction, out=factor),
            partial(np.add, factor, np.float32(1), out=factor),
            partial(np.multiply, mean_sum, fraction, out=mean_sum),
            partial(np.add, mean_sum, mean, out=mean_sum),
            partial(np.multiply, variance, unbiased, out=t),
            partial(np.multiply, variance_sum, fraction, out=variance_sum),
            partial(np.add, variance_sum, t, out=variance_sum),
        ]

    return [scratch.recipe("numpy", bind)]


def _average(total: np.ndarray, factor: np.ndarray, out: np.ndarray) -> None:
    """total / factor; nothing has been added up yet where the factor is 0"""
    if factor[0]:
        np.divide(total, factor[0], out=out)
    else:
        out.fill(0)


def batch_norm_inference(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    """x mean_sum variance_sum factor -> y"""
    if not channels_last(op.reads[0].shape):
        return None
    g = _BatchNorm(dnnl, op.reads[0], op.attrs.eps)
    p = g.forward(d.INFERENCE, d.GLOBAL_STATISTICS)
    scratch = Scratch()
    pad, *pieces = scratch.take(p.scratchpad), *(scratch.take(op.reads[1].nbytes) for _ in range(2))

    def bind(reads, writes, ws):
        x, mean_sum, variance_sum, factor = reads
        mean, variance = (piece.array(ws) for piece in pieces)
        return [
            partial(_average, mean_sum, factor, mean),
            partial(_average, variance_sum, factor, variance),
            p.bind(g.arguments(x=x, y=writes[0], mean=mean, variance=variance), pad.address(ws)),
        ]

    return [scratch.recipe("nhwc", bind)]


def batch_norm_inference_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    """variance_sum factor dy -> dx = dy / sqrt(variance + eps)"""
    variance, _, dy = op.reads
    if not channels_last(dy.shape):
        return None
    c = dy.shape[1]
    matrix, row = dnnl.desc((dy.size // c, c)), dnnl.desc((1, c))
    p = dnnl.best("binary", d.MULTIPLY, matrix, row, matrix, dnnl.attr)
    eps = np.float32(op.attrs.eps)
    scratch = Scratch()
    piece = scratch.take(variance.nbytes)

    def bind(reads, writes, ws):
        variance_sum, factor, dy = reads
        t = piece.array(ws)
        return [
            partial(_average, variance_sum, factor, t),
            partial(np.add, t, eps, out=t),
            partial(np.sqrt, t, out=t),
            partial(np.divide, np.float32(1), t, out=t),
            p.bind({
                d.SRC: (matrix, address(dy)), d.SRC_1: (row, address(t)), d.DST: (matrix, address(writes[0])),
            }),
        ]  # fmt: skip

    return [scratch.recipe("nhwc", bind)]


# Scale


def scale_backward_filter(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    """dgamma = the sum of x * dy by channel: the filter gradient of a depthwise 1 x 1 convolution"""
    x = op.reads[0]
    if not channels_last(x.shape):
        return None
    shape = four(x.shape)
    c = shape[1]
    image, weight, gamma = dnnl.desc(shape, strides(shape)), dnnl.any((c, 1, 1, 1, 1)), dnnl.desc((c, 1, 1, 1, 1))
    ones, zeros = d.Dims(1, 1), d.Dims(0, 0)
    window = (ones, zeros, zeros, zeros)
    direct = d.CONVOLUTION_DIRECT
    hint = dnnl.best("convolution_forward", d.TRAINING, direct, image, weight, None, image, *window, dnnl.attr)
    p = dnnl.best("convolution_backward_weights", direct, image, weight, None, image, *window, hint.pd, dnnl.attr)
    theirs = p.desc(d.DIFF_WEIGHTS)
    reorder = dnnl.reorder(theirs, gamma)
    scratch = Scratch()
    pad, result, reorder_pad = (scratch.take(n) for n in (p.scratchpad, theirs.nbytes, reorder.scratchpad))

    def bind(reads, writes, ws):
        there = (theirs, result.address(ws))
        x, dy = ((image, address(a)) for a in reads)
        return [
            p.bind({d.SRC: x, d.DIFF_DST: dy, d.DIFF_WEIGHTS: there}, pad.address(ws)),
            reorder.bind({d.SRC: there, d.DST: (gamma, address(writes[0]))}, reorder_pad.address(ws)),
        ]

    return [scratch.recipe("depthwise", bind)]


KINDS = {
    "lrn.forward": lrn_forward,
    "lrn.backward": lrn_backward,
    "batch_norm.forward": batch_norm_forward,
    "batch_norm.backward": batch_norm_backward,
    "batch_norm.statistics": batch_norm_statistics,
    "batch_norm.inference": batch_norm_inference,
    "batch_norm.inference_backward": batch_norm_inference_backward,
    "scale.backward_filter": scale_backward_filter,
}
