"""InnerProduct: matrix products over everything behind the batch axis; and the bias gradient they all share."""

from __future__ import annotations


def forward(a, reads, writes):
    """y[n, o] = sum over k of w[o, k] x[n, k] (+ b[o])."""
    (x, w, *b), (y,) = reads, writes
    y[...] = x.reshape(len(x), -1) @ w.reshape(len(w), -1).T
    if b:
        y += b[0]


def backward_filter(a, reads, writes):
    (x, dy), (dw,) = reads, writes
    dw[...] = (dy.T @ x.reshape(len(x), -1)).reshape(dw.shape)


def backward_data(a, reads, writes):
    (w, dy), (dx,) = reads, writes
    dx[...] = (dy @ w.reshape(len(w), -1)).reshape(dx.shape)


def backward_bias(a, reads, writes):
    """db[c] = the sum of dy over all axes but the channels'."""
    (dy,), (db,) = reads, writes
    db[...] = dy.sum(axis=tuple(k for k in range(dy.ndim) if k != 1))
