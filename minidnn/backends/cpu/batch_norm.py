"""Batch normalization and Scale's gamma, by oneDNN with channels innermost."""

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
    "batch_norm.forward": batch_norm_forward,
    "batch_norm.backward": batch_norm_backward,
    "batch_norm.statistics": batch_norm_statistics,
    "batch_norm.inference": batch_norm_inference,
    "batch_norm.inference_backward": batch_norm_inference_backward,
    "scale.backward_filter": scale_backward_filter,
}
