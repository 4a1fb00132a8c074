"""Bias gradients: sums over each channel, by oneDNN's average pooling and NumPy."""

from __future__ import annotations

from functools import partial

import numpy as np

from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch, plain
from minidnn.backends.layout import channels_last, channels_of_sum, four, strides
from minidnn.program import Op


def backward_bias(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for dy -> db, the sum over all axes but the channels: per image by average pooling, then over images.
    None if channels are not innermost."""
    given = channels_of_sum(op)
    if not channels_last(given):
        return []
    n, c, h, w = shape = four(given)
    if h * w == 1:
        return [plain(lambda reads, writes, _: [_sum_of_rows(flat(reads[0]).reshape(n, c), writes[0])], "numpy")]
    source, target = dnnl.desc(shape, strides(shape)), dnnl.desc((n, c, 1, 1), strides((n, c, 1, 1)))
    ones, zeros = d.Dims(1, 1), d.Dims(0, 0)
    p = dnnl.best(
        "pooling_forward", d.INFERENCE, d.POOLING_AVERAGE, source, target,
        ones, d.Dims(h, w), zeros, zeros, zeros, dnnl.attr,
    )  # fmt: skip
    scratch = Scratch()
    pad, means = scratch.take(p.scratchpad), scratch.take(n * c * 4)

    def bind(reads, writes, workspace):
        db, mean = flat(writes[0]), means.array(workspace).reshape(n, c)
        pool = p.bind(
            {d.SRC: (source, address(reads[0])), d.DST: (target, means.address(workspace))},
            pad.address(workspace),
        )
        return [pool, _sum_of_rows(mean, db), partial(np.multiply, db, np.float32(h * w), out=db)]

    return [scratch.recipe("pooling", bind)]


def _sum_of_rows(matrix: np.ndarray, out: np.ndarray) -> Call:
    """A step of out = the rows added up in order. A reduction along an axis would allocate a buffer in NumPy 2.2."""
    total, (first, *others) = flat(out), matrix

    def call() -> None:
        np.copyto(total, first)
        for row in others:
            np.add(total, row, out=total)

    return call


KINDS = {
    "convolution.backward_bias": backward_bias,
    "inner_product.backward_bias": backward_bias,
    "scale.backward_bias": backward_bias,
}
