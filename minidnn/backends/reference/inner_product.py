"""InnerProduct: matrix products over all axes after the batch axis."""

from __future__ import annotations

from minidnn.backends.reference.activation import rectified


def forward(a, reads, writes):
    """y[n, o] = sum over k of w[o, k] x[n, k] (+ b[o])."""
    (x, w, *b), (y,) = reads, writes
    y[...] = x.reshape(len(x), -1) @ w.reshape(len(w), -1).T
    if b:
        y += b[0]


def forward_relu(a, reads, writes):
    """y = ReLU(forward), with zeros and NaN as in relu.forward."""
    forward(a, reads, writes)
    writes[0][...] = rectified(writes[0])


def backward_filter(a, reads, writes):
    """dw[o, k] = sum over n of dy[n, o] x[n, k]."""
    (x, dy), (dw,) = reads, writes
    dw[...] = (dy.T @ x.reshape(len(x), -1)).reshape(dw.shape)


def backward_data(a, reads, writes):
    """dx[n, k] = sum over o of dy[n, o] w[o, k]."""
    (w, dy), (dx,) = reads, writes
    dx[...] = (dy @ w.reshape(len(w), -1)).reshape(dx.shape)


KINDS = {
    "inner_product.forward": forward,
    "inner_product.forward_relu": forward_relu,
    "inner_product.backward_filter": backward_filter,
    "inner_product.backward_data": backward_data,
}
