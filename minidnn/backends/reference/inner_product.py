"""InnerProduct: matrix products. x and y are rows: as many as x has times the elements of a row of w."""

from __future__ import annotations

from minidnn.backends.reference.activation import rectified


def forward(a, reads, writes):
    """y[n, o] = sum over k of w[o, k] x[n, k] (+ b[o])."""
    (x, w, *b), (y,) = reads, writes
    w = w.reshape(len(w), -1)
    y[...] = (x.reshape(-1, w.shape[1]) @ w.T).reshape(y.shape)
    if b:
        y += b[0]


def forward_relu(a, reads, writes):
    """y = ReLU(forward), with zeros and NaN as in relu.forward."""
    forward(a, reads, writes)
    writes[0][...] = rectified(writes[0])


def backward_filter(a, reads, writes):
    """dw[o, k] = sum over n of dy[n, o] x[n, k]."""
    (x, dy), (dw,) = reads, writes
    dy = dy.reshape(-1, len(dw))
    dw[...] = (dy.T @ x.reshape(len(dy), -1)).reshape(dw.shape)


def backward_data(a, reads, writes):
    """dx[n, k] = sum over o of dy[n, o] w[o, k]."""
    (w, dy), (dx,) = reads, writes
    dx[...] = (dy.reshape(-1, len(w)) @ w.reshape(len(w), -1)).reshape(dx.shape)


KINDS = {
    "inner_product.forward": forward,
    "inner_product.forward_relu": forward_relu,
    "inner_product.backward_filter": backward_filter,
    "inner_product.backward_data": backward_data,
}
