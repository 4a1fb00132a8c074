"""LRN, BatchNorm and Scale."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def per_channel(v, x):
    """v (C,) in the shape that goes with x (N, C, ...)."""
    return v.reshape(1, -1, *(1,) * (x.ndim - 2))


def other_axes(x):
    return tuple(k for k in range(x.ndim) if k != 1)


# ---- LRN


def window_sum(v, a):
    """The sum of v over each element's window, zeros beyond the edge: n channels, or n x n places."""
    half = a.size // 2
    if a.region == "ACROSS_CHANNELS":
        padded = np.pad(v, ((0, 0), (half, half), (0, 0), (0, 0)))
        return sliding_window_view(padded, a.size, 1).sum(-1)
    padded = np.pad(v, ((0, 0), (0, 0), (half, half), (half, half)))
    return sliding_window_view(sliding_window_view(padded, a.size, 2).sum(-1), a.size, 3).sum(-1)


def lrn_terms(x, a):
    """(scale, alpha per element of the window): y = x * scale^-beta."""
    across = a.region == "ACROSS_CHANNELS"
    alpha = a.alpha / (a.size if across else a.size**2)
    return (a.k if across else 1.0) + alpha * window_sum(x * x, a), alpha


def lrn_forward(a, reads, writes):
    (x,), (y,) = reads, writes
    y[...] = x * lrn_terms(x, a)[0] ** -a.beta


def lrn_backward(a, reads, writes):
    """dx = dy scale^-beta - 2 alpha beta x sum over the window of dy x scale^(-beta - 1)."""
    (x, *_, dy), (dx,) = reads, writes
    scale, alpha = lrn_terms(x, a)
    power = scale**-a.beta
    dx[...] = dy * power - 2 * alpha * a.beta * x * window_sum(dy * x * power / scale, a)


# ---- BatchNorm


def normalized(a, x, mean, variance):
    return (x - per_channel(mean, x)) / np.sqrt(per_channel(variance, x) + a.eps)


def batch_norm_forward(a, reads, writes):
    (x,), (y, mean, variance) = reads, writes
    m = x.mean(other_axes(x))
    v = x.var(other_axes(x))
    y[...] = normalized(a, x, m, v)
    mean[...], variance[...] = m, v


def batch_norm_statistics(a, reads, writes):
    """Running sums: s <- f s + (the batch's); the variance made unbiased by m / (m - 1)."""
    mean, variance, *_ = reads
    mean_sum, variance_sum, factor = writes
    factor[...] = a.fraction * factor + 1
    mean_sum[...] = a.fraction * mean_sum + mean
    unbiased = a.count / (a.count - 1) if a.count > 1 else 1.0
    variance_sum[...] = a.fraction * variance_sum + unbiased * variance


def batch_norm_backward(a, reads, writes):
    """dx = (dy - mean(dy) - xhat mean(dy xhat)) / sqrt(variance + eps)."""
    (x, mean, variance, dy), (dx,) = reads, writes
    deviation = np.sqrt(per_channel(variance, x) + a.eps)
    xhat = (x - per_channel(mean, x)) / deviation
    along = other_axes(x)
    centred = dy - dy.mean(along, keepdims=True) - xhat * (dy * xhat).mean(along, keepdims=True)
    dx[...] = centred / deviation


def running(total, factor):
    """A running statistic from its sum; 0 before the first update."""
    return total / factor[0] if factor[0] else np.zeros_like(total)


def batch_norm_inference(a, reads, writes):
    (x, mean_sum, variance_sum, factor), (y,) = reads, writes
    y[...] = normalized(a, x, running(mean_sum, factor), running(variance_sum, factor))


def batch_norm_inference_backward(a, reads, writes):
    (variance_sum, factor, dy), (dx,) = reads, writes
    dx[...] = dy / np.sqrt(per_channel(running(variance_sum, factor), dy) + a.eps)


# ---- Scale


def scale_forward(a, reads, writes):
    (x, gamma, *beta), (y,) = reads, writes
    y[...] = x * per_channel(gamma, x)
    if beta:
        y += per_channel(beta[0], x)


def scale_backward_filter(a, reads, writes):
    (x, dy), (dgamma,) = reads, writes
    dgamma[...] = (x * dy).sum(other_axes(x))


def scale_backward_data(a, reads, writes):
    (gamma, dy), (dx,) = reads, writes
    dx[...] = dy * per_channel(gamma, dy)
