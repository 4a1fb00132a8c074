"""MatMul: products of pairs of matrices."""

from __future__ import annotations


def matmul(a, reads, writes):
    """y = scale * left right (+ bias), for each of a.batch pairs; the bias (columns,) is added to each row."""
    (left, right, *bias), (y,) = reads, writes
    left = left.reshape(a.batch, *((a.depth, a.rows) if a.transpose_a else (a.rows, a.depth)))
    right = right.reshape(a.batch, *((a.columns, a.depth) if a.transpose_b else (a.depth, a.columns)))
    left, right = (left.swapaxes(1, 2) if a.transpose_a else left), (right.swapaxes(1, 2) if a.transpose_b else right)
    y[...] = (a.scale * (left @ right)).reshape(y.shape)
    if bias:
        y += bias[0]


KINDS = {"matmul.forward": matmul}
