"""LayerNorm, RMSNorm, MVN, Normalize: y = (x - mean) * inverse (* gamma + beta), row by row."""

from __future__ import annotations

import numpy as np


def along(a, x):
    """The axes of a row."""
    return tuple(range(a.first, min(a.last, x.ndim)))


def lying(v, a, x):
    """gamma or beta, one number per element of a row, in a shape that broadcasts over x."""
    return v.reshape((*x.shape[a.first : a.last], *[1] * (x.ndim - a.last)))


def forward(a, reads, writes):
    """x (gamma beta) -> y (inverse) (mean)."""
    (x, *scale), (y, *kept) = reads, writes
    rows = along(a, x)
    mean = x.mean(rows, keepdims=True) if a.centred else np.zeros_like(x, shape=())
    away = x - mean
    inverse = np.ones_like(x, shape=())
    if a.divisor == "VARIANCE":
        inverse = 1 / np.sqrt((away**2).mean(rows, keepdims=True) + a.eps)
    elif a.divisor == "DEVIATION":
        inverse = 1 / (np.sqrt((away**2).mean(rows, keepdims=True)) + a.eps)
    elif a.divisor == "NORM":
        inverse = 1 / np.sqrt((away**2).sum(rows, keepdims=True) + a.eps)
    y[...] = away * inverse
    if scale:
        y *= lying(scale[0], a, x)
        y += lying(scale[1], a, x)
        kept[1][...] = mean
    if a.divisor != "NONE":
        kept[0][...] = inverse


def normalized(x, inverse, *mean):
    """The normalized x; x itself, if it is that already and there is no mean."""
    return (x - mean[0]) * inverse if mean else x


def backward_data(a, reads, writes):
    """x dy inverse mean gamma -> dx, y dy inverse -> dx, or dy -> dx:

    dx = inverse (g - mean(g) - n factor mean(g n)), where g is dy (* gamma), and n the normalized x. The factor is 1,
    or deviation + eps over the deviation. A row that is not centred has no mean(g). One that was divided by its norm
    has the sum of g n in place of its mean."""
    (dx,), rows = writes, along(a, reads[0])
    if a.divisor == "NONE":
        (g,) = reads
        dx[...] = g - g.mean(rows, keepdims=True) if a.centred else g
        return
    x, dy, inverse, *scaled = reads
    g = dy * lying(scaled[1], a, dy) if scaled else dy
    n = normalized(x, inverse, *scaled[:1])
    level = g.mean(rows, keepdims=True) if a.centred else 0
    if a.divisor == "NORM":
        dx[...] = inverse * (g - level - n * (g * n).sum(rows, keepdims=True))
        return
    factor = np.ones_like(inverse)
    if a.divisor == "DEVIATION":
        share = 1 - a.eps * inverse  # deviation / (deviation + eps); 0 where all elements are equal, and n is 0
        factor = np.where(share <= 0, 0, 1 / np.where(share <= 0, 1, share))
    dx[...] = inverse * (g - level - n * factor * (g * n).mean(rows, keepdims=True))


def backward_filter(a, reads, writes):
    """x dy inverse mean -> dgamma dbeta: sums over rows of dy times the normalized x, and of dy."""
    x, dy, inverse, mean = reads
    dgamma, dbeta = writes
    n = normalized(x, inverse, mean)
    others = tuple(k for k in range(dy.ndim) if k not in along(a, dy))
    dgamma[...] = (dy * n).sum(others).reshape(dgamma.shape)
    dbeta[...] = dy.sum(others).reshape(dbeta.shape)


KINDS = {
    "row_norm.forward": forward,
    "row_norm.backward_data": backward_data,
    "row_norm.backward_filter": backward_filter,
}
