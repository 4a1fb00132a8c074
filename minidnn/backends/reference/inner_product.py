"""InnerProduct: matrix products. A sample of x has one row of inputs, or several."""

from __future__ import annotations

from minidnn.backends.reference.activation import rectified
from minidnn.backends.reference.products import by_matrix, products, samples


def forward(a, reads, writes):
    """y[n, o] = sum over k of w[o, k] x[n, k] (+ b[o])."""
    (x, w, *b), (y,) = reads, writes
    w = w.reshape(len(w), -1)
    x = x.reshape(*samples(y, len(w)).shape[:2], w.shape[1])
    y[...] = by_matrix(x, w, transpose=True).reshape(y.shape)
    if b:
        y += b[0]


def forward_relu(a, reads, writes):
    """y = ReLU(forward), with zeros and NaN as in relu.forward."""
    forward(a, reads, writes)
    writes[0][...] = rectified(writes[0])


def backward_filter(a, reads, writes):
    """dw[o, k] = sum over n of dy[n, o] x[n, k]."""
    (x, dy), (dw,) = reads, writes
    dy = dy.reshape(1, -1, len(dw))
    dw[...] = products(dy, x.reshape(1, dy.shape[1], -1), transpose_left=True).reshape(dw.shape)


def backward_data(a, reads, writes):
    """dx[n, k] = sum over o of dy[n, o] w[o, k]."""
    (w, dy), (dx,) = reads, writes
    dx[...] = by_matrix(samples(dy, len(w)), w.reshape(len(w), -1)).reshape(dx.shape)


KINDS = {
    "inner_product.forward": forward,
    "inner_product.forward_relu": forward_relu,
    "inner_product.backward_filter": backward_filter,
    "inner_product.backward_data": backward_data,
}
