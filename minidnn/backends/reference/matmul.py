"""MatMul: products of pairs of matrices."""

from __future__ import annotations

from minidnn.backends.reference.products import by_matrix, products, samples


def matmul(a, reads, writes):
    """y = scale * left right (+ bias), for each of a.batch pairs; the bias (columns,) is added to each row."""
    (left, right, *bias), (y,) = reads, writes
    left = left.reshape(a.batch, *((a.depth, a.rows) if a.transpose_a else (a.rows, a.depth)))
    right = right.reshape(a.batch, *((a.columns, a.depth) if a.transpose_b else (a.depth, a.columns)))
    if a.batch == 1 and not a.transpose_a:  # as of an InnerProduct, whose samples are its rows
        result = by_matrix(left.reshape(*samples(y, a.columns).shape[:2], a.depth), right[0], a.transpose_b)
    else:
        result = products(left, right, a.transpose_a, a.transpose_b)
    y[...] = (a.scale * result).reshape(y.shape)
    if bias:
        y += bias[0]


KINDS = {"matmul.forward": matmul}
