"""Inner product as matrix products on the bytes as they lie, and the column sums that every bias gradient is.

A 4-D bottom and its weights both lie with channels innermost, so their rows multiply without any reordering.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from minidnn.backends.cpu import dnnl as d
from minidnn.backends.cpu.layout import address, channels_last, flat, four, strides
from minidnn.backends.cpu.recipe import Recipe, Scratch, plain
from minidnn.program import Op, Tensor


def _matrix(dnnl: d.Dnnl, rows: int, columns: int, transposed: bool = False) -> d.Desc:
    """A row-major matrix; transposed: its logical transpose, on the same bytes."""
    return dnnl.desc((columns, rows), (1, columns)) if transposed else dnnl.desc((rows, columns))


def _product(dnnl: d.Dnnl, a: d.Desc, b: d.Desc, c: d.Desc, bias: d.Desc | None = None) -> list[Recipe]:
    p = dnnl.best("matmul", a, b, bias, c, dnnl.attr)
    scratch = Scratch()
    pad = scratch.take(p.scratchpad)

    def bind(reads, writes, workspace):
        arguments = {
            d.SRC: (a, address(reads[0])),
            d.WEIGHTS: (b, address(reads[1])),
            d.DST: (c, address(writes[0])),
        }
        if bias is not None:
            arguments[d.BIAS] = (bias, address(reads[2]))
        return [p.bind(arguments, pad.address(workspace))]

    return [scratch.recipe(f"matmul.{p.name.split(':')[0]}", bind)]


def _sizes(x: Tensor, w: Tensor) -> tuple[int, int, int]:
    """(N, outputs, inputs)"""
    return x.shape[0], w.shape[0], w.size // w.shape[0]


def _alike(x: Tensor, w: Tensor) -> bool:
    """Whether the rows of x and w lie in the same order; otherwise the reference's route is taken."""
    return (len(x.shape) == 4) == (len(w.shape) == 4)


def forward(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    x, w, *b = op.reads
    if not _alike(x, w):
        return None
    n, o, k = _sizes(x, w)
    bias = dnnl.desc((1, o)) if b else None
    return _product(dnnl, _matrix(dnnl, n, k), _matrix(dnnl, o, k, transposed=True), _matrix(dnnl, n, o), bias)


def backward_data(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    """dx (n, k) = dy (n, o) w (o, k)"""
    (w, _), (dx,) = op.reads, op.writes
    if not _alike(dx, w):
        return None
    n, o, k = _sizes(dx, w)
    (recipe,) = _product(dnnl, _matrix(dnnl, n, o), _matrix(dnnl, o, k), _matrix(dnnl, n, k))
    return [Recipe(recipe.algorithm, lambda reads, writes, ws: recipe.bind(reads[::-1], writes, ws))]


def backward_filter(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    """dw (o, k) = dy' (o, n) x (n, k)"""
    (x, _), (dw,) = op.reads, op.writes
    if not _alike(x, dw):
        return None
    n, o, k = _sizes(x, dw)
    (recipe,) = _product(dnnl, _matrix(dnnl, n, o, transposed=True), _matrix(dnnl, n, k), _matrix(dnnl, o, k))
    return [Recipe(recipe.algorithm, lambda reads, writes, ws: recipe.bind(reads[::-1], writes, ws))]


def backward_bias(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    """db = the sum of dy over all but its channels: per image by average pooling, then over images."""
    (dy,) = op.reads
    if not channels_last(dy.shape):
        return None
    n, c, h, w = shape = four(dy.shape)
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


def _sum_of_rows(matrix: np.ndarray, out: np.ndarray) -> d.Call:
    """out = the rows added up in order. Row by row, because a reduction along an axis takes a buffer in NumPy 2.2."""
    total, (first, *others) = flat(out), matrix

    def call() -> None:
        np.copyto(total, first)
        for row in others:
            np.add(total, row, out=total)

    return call


KINDS = {
    "inner_product.forward": forward,
    "inner_product.backward_data": backward_data,
    "inner_product.backward_filter": backward_filter,
    "inner_product.backward_bias": backward_bias,
    "convolution.backward_bias": backward_bias,
    "scale.backward_bias": backward_bias,
}
