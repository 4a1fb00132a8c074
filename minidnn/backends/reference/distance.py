"""Losses of elements with targets or labels, and of pairs of vectors.

A loss of elements is the sum of f(x, t) over all elements that count, over a divisor. FUNCTIONS has f and its
derivative by x. The derivative by t, where it is wanted, is the negative of that.
"""

from __future__ import annotations

import numpy as np

from minidnn.backends.reference.loss import divided_by, valid_labels

LEAST = 1e-20  # Caffe's least probability in a MultinomialLogisticLoss, before its logarithm is taken
NEAR = 1e-4  # Caffe adds this to the distance of a pair before it divides by it


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def cross_entropy(x, t, sigma):
    """-t log(p) - (1 - t) log(1 - p), where p = sigmoid(x), without overflow: Caffe's formula."""
    return np.log1p(np.exp(-np.abs(x))) - x * (t - (x >= 0))


def smooth(x, t, sigma):
    d = np.abs(x - t)
    return np.where(d < 1 / sigma**2, (sigma * d) ** 2 / 2, d - 0.5 / sigma**2)


def smooth_slope(x, t, sigma):
    d = x - t
    return np.where(np.abs(d) < 1 / sigma**2, sigma**2 * d, np.sign(d))


def short(x, t):
    """How far a score is from beyond the margin; np.maximum keeps NaN."""
    return np.maximum(1 - (2 * t - 1) * x, 0)


FUNCTIONS = {  # name -> (f, its derivative by x), of x, t and sigma
    "SIGMOID_CROSS_ENTROPY": (cross_entropy, lambda x, t, sigma: sigmoid(x) - t),
    "SQUARE": (lambda x, t, sigma: (x - t) ** 2 / 2, lambda x, t, sigma: x - t),
    "SMOOTH_L1": (smooth, smooth_slope),
    "HINGE_L1": (lambda x, t, sigma: short(x, t), lambda x, t, sigma: (1 - 2 * t) * np.sign(short(x, t))),
    "HINGE_L2": (lambda x, t, sigma: short(x, t) ** 2, lambda x, t, sigma: 2 * (1 - 2 * t) * short(x, t)),
    "LOGISTIC": (
        lambda x, t, sigma: np.where(t != 0, -np.log(np.maximum(x, LEAST)), 0),
        lambda x, t, sigma: np.where(t != 0, -1 / np.maximum(x, LEAST), 0),
    ),
}


def elements(a, reads):
    """(x, t, weights inside, weights outside, whether each element counts, the divisor), each in the shape of x. Labels
    become targets: 1 for the label's class, 0 for the others. Raises ValueError for a label that names no class."""
    x, t, *weights = reads
    if t.dtype == np.int32:
        x = x.reshape(len(x), -1)
        label, _ = valid_labels(t, x.shape[1], None)
        t = (np.arange(x.shape[1]) == label[:, None]).astype(x.dtype)
    t, *weights = (w.reshape(x.shape) for w in (t, *weights))
    inside, outside = (*weights, 1, 1)[:2]
    counts = np.ones(x.shape, bool) if a.ignore_label is None else np.trunc(t) != a.ignore_label
    return x, t, inside, outside, counts, divided_by(a.normalization, x.size, int(counts.sum()), len(x))


def pointwise_forward(a, reads, writes):
    """x t (inside outside) -> loss. With weights: outside f(inside (x - t), 0)."""
    x, t, inside, outside, counts, divisor = elements(a, reads)
    if len(reads) > 2:
        x, t = inside * (x - t), 0
    loss, _ = FUNCTIONS[a.function]
    writes[0][0] = np.where(counts, outside * loss(x, t, a.sigma), 0).sum(dtype=np.float64) / divisor


def pointwise_backward(a, reads, writes):
    """x t (inside outside) -> (dx) (dt), those of `into`."""
    x, t, inside, outside, counts, divisor = elements(a, reads)
    if len(reads) > 2:
        x, t = inside * (x - t), 0
    _, slope = FUNCTIONS[a.function]
    factor = x.dtype.type(a.loss_weight / divisor)
    result = np.where(counts, inside * outside * slope(x, t, a.sigma) * factor, 0)
    for i, dx in zip(a.into, writes, strict=True):
        dx[...] = (-result if i else result).reshape(dx.shape)


def pairs(reads):
    """(a - b, by rows (N, C); the square of each row's length; whether each pair is similar)"""
    x, y, similar = reads
    d = (x - y.reshape(x.shape)).reshape(len(x), -1)
    return d, (d * d).sum(1), similar.reshape(-1) != 0


def contrastive_forward(a, reads, writes):
    """x y similar -> loss."""
    _, square, similar = pairs(reads)
    apart = np.maximum(a.margin - square, 0) if a.legacy else np.maximum(a.margin - np.sqrt(square), 0) ** 2
    writes[0][0] = np.where(similar, square, apart).sum(dtype=np.float64) / (2 * len(square))


def contrastive_backward(a, reads, writes):
    """x y similar -> (dx) (dy), those of `into`. A pair beyond the margin has none."""
    d, square, similar = pairs(reads)
    factor = d.dtype.type(a.loss_weight / len(d))
    distance = np.sqrt(square)
    short = a.margin - (square if a.legacy else distance)
    apart = np.ones_like(short) if a.legacy else short / (distance + d.dtype.type(NEAR))
    result = np.where(similar, factor, -factor * apart)[:, None] * d
    result[~similar & (short <= 0)] = 0
    for i, dx in zip(a.into, writes, strict=True):
        dx[...] = (-result if i else result).reshape(dx.shape)


KINDS = {
    "pointwise_loss.forward": pointwise_forward,
    "pointwise_loss.backward": pointwise_backward,
    "contrastive_loss.forward": contrastive_forward,
    "contrastive_loss.backward": contrastive_backward,
}
