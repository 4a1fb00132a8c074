"""Inner product as matrix products on the bytes as they lie, and the column sums that every bias gradient is.

A 4-D bottom and its weights both lie with channels innermost, so their rows multiply without any reordering.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from threadpoolctl import ThreadpoolController

from minidnn.backends.cpu import dnnl as d
from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.recipe import Recipe, Scratch, plain
from minidnn.backends.layout import channels_last, four, strides
from minidnn.program import Op, Tensor


@dataclass(frozen=True)
class Matrix:
    """A row-major matrix in memory; transposed: it takes part as its transpose, on the same bytes."""

    rows: int
    columns: int
    transposed: bool = False

    def desc(self, dnnl: d.Dnnl) -> d.Desc:
        if self.transposed:
            return dnnl.desc((self.columns, self.rows), (1, self.columns))
        return dnnl.desc((self.rows, self.columns))

    def of(self, array: np.ndarray) -> np.ndarray:
        lying = flat(array).reshape(self.rows, self.columns)
        return lying.T if self.transposed else lying


def _product(dnnl: d.Dnnl, left: Matrix, right: Matrix, out: Matrix, bias: bool = False) -> list[Recipe]:
    """out = left right (+ bias). Below AVX-512 oneDNN 3.2 has nothing but its reference, many times slower than
    NumPy's BLAS, which like it writes where it is told to; a last resort, where our own (native/inner_product.py) are
    not to be had."""
    a, b, c = left.desc(dnnl), right.desc(dnnl), out.desc(dnnl)
    row = dnnl.desc((1, out.columns)) if bias else None
    p = next((p for p in dnnl.implementations("matmul", a, b, row, c, dnnl.attr) if d.usable(p.name)), None)
    if p is None:
        return [plain(lambda reads, writes, _: _blas(left, right, out, reads, writes[0]), "blas")]
    scratch = Scratch()
    pad = scratch.take(p.scratchpad)

    def bind(reads, writes, workspace):
        arguments = {
            d.SRC: (a, address(reads[0])),
            d.WEIGHTS: (b, address(reads[1])),
            d.DST: (c, address(writes[0])),
        }
        if row is not None:
            arguments[d.BIAS] = (row, address(reads[2]))
        return [p.bind(arguments, pad.address(workspace))]

    return [scratch.recipe(f"matmul.{p.name.split(':')[0]}", bind)]


def _blas(left: Matrix, right: Matrix, out: Matrix, arrays: Sequence[np.ndarray], result: np.ndarray) -> list[d.Call]:
    a, b, c = left.of(arrays[0]), right.of(arrays[1]), out.of(result)
    libraries = [x for x in ThreadpoolController().lib_controllers if x.user_api == "blas"]
    before = [x.get_num_threads() for x in libraries]

    def call() -> None:
        for x in libraries:  # on several threads OpenBLAS takes half a megabyte from the heap in every call
            x.set_num_threads(1)
        np.matmul(a, b, out=c)
        for x, threads in zip(libraries, before, strict=True):
            x.set_num_threads(threads)

    def add(bias: np.ndarray) -> None:
        for row in c:  # by rows: a broadcast would take a buffer
            np.add(row, bias, out=row)

    return [call, *(partial(add, flat(bias)) for bias in arrays[2:])]


def sizes(x: Tensor, w: Tensor) -> tuple[int, int, int]:
    """(N, outputs, inputs)"""
    return x.shape[0], w.shape[0], w.size // w.shape[0]


def alike(x: Tensor, w: Tensor) -> bool:
    """Whether the rows of x and w lie in the same order; otherwise the reference's route is taken."""
    return (len(x.shape) == 4) == (len(w.shape) == 4)


def forward(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    x, w, *b = op.reads
    if not alike(x, w):
        return None
    n, o, k = sizes(x, w)
    return _product(dnnl, Matrix(n, k), Matrix(o, k, transposed=True), Matrix(n, o), bool(b))


def backward_data(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    """dx (n, k) = dy (n, o) w (o, k)"""
    (w, _), (dx,) = op.reads, op.writes
    if not alike(dx, w):
        return None
    n, o, k = sizes(dx, w)
    (recipe,) = _product(dnnl, Matrix(n, o), Matrix(o, k), Matrix(n, k))
    return [Recipe(recipe.algorithm, lambda reads, writes, ws: recipe.bind(reads[::-1], writes, ws))]


def backward_filter(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    """dw (o, k) = dy' (o, n) x (n, k)"""
    (x, _), (dw,) = op.reads, op.writes
    if not alike(x, dw):
        return None
    n, o, k = sizes(x, dw)
    (recipe,) = _product(dnnl, Matrix(n, o, transposed=True), Matrix(n, k), Matrix(o, k))
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
