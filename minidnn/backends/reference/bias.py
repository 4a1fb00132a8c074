"""Bias gradients: sums over all axes but the channels, which are axis 1, or the last axis of an inner product."""

from __future__ import annotations

from minidnn.backends.reference.activation import passed
from minidnn.backends.reference.channels import other_axes


def backward_bias(a, reads, writes):
    """db[c] = the sum of dy over all axes but the channels'."""
    (dy,), (db,) = reads, writes
    db[...] = dy.sum(axis=other_axes(dy))


def backward_bias_of_rows(a, reads, writes):
    """db[c] = the sum of dy over all axes but the last; of images, all axes but the channels'."""
    (dy,), (db,) = reads, writes
    db[...] = dy.sum(other_axes(dy)) if dy.ndim == 4 else dy.reshape(-1, len(db)).sum(0)


def relu_backward_bias(a, reads, writes):
    """dx = dy where y > 0; db[c] = the sum of dx over all axes but the channels'."""
    (y, dy), (dx, db) = reads, writes
    dx[...] = passed(y, dy)
    backward_bias(None, [dx], [db])


def relu_backward_bias_slice(a, reads, writes):
    """The same of slices: of a read that has more channels than dx, those from a.start on. Without y, dx is dy."""
    dx, db = writes
    c = dx.shape[1]
    y, dy = ((x if x.shape[1] == c else x[:, a.start : a.start + c]) for x in (reads[0], reads[-1]))
    dx[...] = dy if len(reads) == 1 else passed(y, dy)
    backward_bias(None, [dx], [db])


KINDS = {
    "convolution.backward_bias": backward_bias,
    "inner_product.backward_bias": backward_bias_of_rows,
    "scale.backward_bias": backward_bias,
    "relu.backward_bias": relu_backward_bias,
    "relu.backward_bias_slice": relu_backward_bias_slice,
}
