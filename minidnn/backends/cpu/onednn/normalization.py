"""The cheap parts of BatchNorm: its running sums, and the gradient of inference."""

from __future__ import annotations

from functools import partial

import numpy as np

from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.recipe import Recipe, Scratch, plain
from minidnn.backends.layout import channels_last
from minidnn.program import Op


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


KINDS = {
    "batch_norm.statistics": batch_norm_statistics,
    "batch_norm.keep": batch_norm_keep,
    "batch_norm.inference_backward": batch_norm_inference_backward,
}
