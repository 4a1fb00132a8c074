"""Bias gradients: sums over all axes but the channels."""

from __future__ import annotations

from minidnn.backends.reference.activation import passed


def backward_bias(a, reads, writes):
    """db[c] = the sum of dy over all axes but the channels'."""
    (dy,), (db,) = reads, writes
    db[...] = dy.sum(axis=tuple(k for k in range(dy.ndim) if k != 1))


def relu_backward_bias(a, reads, writes):
    """dx = dy where y > 0; db[c] = the sum of dx over all axes but the channels'."""
    (y, dy), (dx, db) = reads, writes
    dx[...] = passed(y, dy)
    backward_bias(None, [dx], [db])


def relu_backward_bias_slice(a, reads, writes):
    """The same of slices: of a read that has more channels than dx, those from a.start on."""
    c = writes[0].shape[1]
    relu_backward_bias(None, [x if x.shape[1] == c else x[:, a.start : a.start + c] for x in reads], writes)


KINDS = {
    "convolution.backward_bias": backward_bias,
    "inner_product.backward_bias": backward_bias,
    "scale.backward_bias": backward_bias,
    "relu.backward_bias": relu_backward_bias,
    "relu.backward_bias_slice": relu_backward_bias_slice,
}
