"""Scale, and the cheap parts of BatchNorm: its running sums, and the gradient of inference."""

from __future__ import annotations

from functools import partial

import numpy as np

from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.recipe import Recipe, Scratch, plain
from minidnn.backends.layout import channels_last, four, strides
from minidnn.program import Op, Tensor


def batch_norm_keep(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for means variances mean variance iteration -> the first two, of which a row is set."""
    every = op.attrs.every

    def bind(reads, writes, ws):
        *_, mean, variance, iteration = map(flat, reads)
        calls = []
        for rows, new in zip(map(flat, writes), (mean, variance), strict=True):
            calls.append(partial(_set_row, list(rows.reshape(every, -1)), iteration, new))
        return calls

    return [plain(bind)]


def _set_row(rows, iteration, new) -> None:
    np.copyto(rows[iteration.item(0) % len(rows)], new)


def batch_norm_statistics(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for mean variance mean_sum variance_sum factor -> the last three, updated in place.

    Each becomes fraction * itself + new, where new is the mean, the unbiased variance, or 1. Mean and variance may have
    rows, one for each batch."""
    a = op.attrs
    unbiased = np.float32(a.count / (a.count - 1) if a.count > 1 else 1.0)
    fraction = np.float32(a.fraction)
    scratch = Scratch()
    piece = scratch.take(op.reads[2].nbytes)

    def bind(reads, writes, ws):
        means, variances, mean_sum, variance_sum, factor = map(flat, reads)
        t, calls = piece.array(ws), []
        rows = (means.reshape(-1, mean_sum.size), variances.reshape(-1, mean_sum.size))
        for mean, variance in zip(*rows, strict=True):
            calls += [
                partial(np.multiply, factor, fraction, out=factor),
                partial(np.add, factor, np.float32(1), out=factor),
                partial(np.multiply, mean_sum, fraction, out=mean_sum),
                partial(np.add, mean_sum, mean, out=mean_sum),
                partial(np.multiply, variance, unbiased, out=t),
                partial(np.multiply, variance_sum, fraction, out=variance_sum),
                partial(np.add, variance_sum, t, out=variance_sum),
            ]
        return calls

    return [scratch.recipe("numpy", bind)]


def average(total: np.ndarray, factor: np.ndarray, out: np.ndarray) -> None:
    """out = total / factor; 0 if the factor is 0, for then nothing has been added up yet"""
    if factor[0]:
        np.divide(total, factor[0], out=out)
    else:
        out.fill(0)


def batch_norm_inference_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for variance_sum factor dy -> dx = dy / sqrt(variance + eps); none if channels are not innermost."""
    variance, _, dy = op.reads
    if not channels_last(dy.shape):
        return []
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
            partial(average, variance_sum, factor, t),
            partial(np.add, t, eps, out=t),
            partial(np.sqrt, t, out=t),
            partial(np.divide, np.float32(1), t, out=t),
            p.bind({
                d.SRC: (matrix, address(dy)), d.SRC_1: (row, address(t)), d.DST: (matrix, address(writes[0])),
            }),
        ]  # fmt: skip

    return [scratch.recipe("nhwc", bind)]


def scale_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x gamma (beta) -> y = x * gamma (+ beta), by channel; none if channels are not innermost."""
    x, _, *beta = op.reads
    if not channels_last(x.shape):
        return []
    return [_by_channel(dnnl, x, bool(beta))]


def scale_backward_data(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for gamma dy -> dx = dy * gamma, by channel; none if channels are not innermost."""
    _, dy = op.reads
    if not channels_last(dy.shape):
        return []
    recipe = _by_channel(dnnl, dy, False)
    return [Recipe(recipe.algorithm, lambda reads, writes, ws: recipe.bind(reads[::-1], writes, ws))]


def _by_channel(dnnl: d.Dnnl, x: Tensor, shift: bool) -> Recipe:
    """The recipe for x factors (shifts) -> x * factors (+ shifts), by channel."""
    c = x.shape[1]
    matrix, row = dnnl.desc((x.size // c, c)), dnnl.desc((1, c))
    p = dnnl.best("binary", d.MULTIPLY, matrix, row, matrix, dnnl.attributes([(d.ADD, row)] if shift else []))

    def bind(reads, writes, _):
        arguments = {
            d.SRC: (matrix, address(reads[0])),
            d.SRC_1: (row, address(reads[1])),
            d.DST: (matrix, address(writes[0])),
        }
        if shift:
            arguments[d.post_op(0)] = (row, address(reads[2]))
        return [p.bind(arguments)]

    return plain(bind)


def scale_backward_filter(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x dy -> dgamma, the sum of x * dy by channel; none if channels are not innermost. It is the filter
    gradient of a depthwise 1 x 1 convolution."""
    x = op.reads[0]
    if not channels_last(x.shape):
        return []
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
    "batch_norm.statistics": batch_norm_statistics,
    "batch_norm.keep": batch_norm_keep,
    "batch_norm.inference_backward": batch_norm_inference_backward,
    "scale.forward": scale_forward,
    "scale.backward_data": scale_backward_data,
    "scale.backward_filter": scale_backward_filter,
}
