"""LRN across channels, and within a channel."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def window_sum(v, a):
    """The sum of v over each element's window, with zeros beyond the edges. A window is n channels, or n x n places."""
    half = a.size // 2
    if a.region == "ACROSS_CHANNELS":
        padded = np.pad(v, ((0, 0), (half, half), (0, 0), (0, 0)))
        return sliding_window_view(padded, a.size, 1).sum(-1)
    padded = np.pad(v, ((0, 0), (0, 0), (half, half), (half, half)))
    return sliding_window_view(sliding_window_view(padded, a.size, 2).sum(-1), a.size, 3).sum(-1)


def terms(x, a):
    """(scale, alpha per element of the window): y = x * scale^-beta."""
    across = a.region == "ACROSS_CHANNELS"
    alpha = a.alpha / (a.size if across else a.size**2)
    return (a.k if across else 1.0) + alpha * window_sum(x * x, a), alpha


def forward(a, reads, writes):
    """y = x scale^-beta, where scale = k + alpha / n times the sum of the window's squares."""
    (x,), (y,) = reads, writes
    y[...] = x * terms(x, a)[0] ** -a.beta


def backward(a, reads, writes):
    """dx = dy scale^-beta - 2 alpha beta x sum over the window of dy x scale^(-beta - 1)."""
    (x, *_, dy), (dx,) = reads, writes
    scale, alpha = terms(x, a)
    power = scale**-a.beta
    dx[...] = dy * power - 2 * alpha * a.beta * x * window_sum(dy * x * power / scale, a)


KINDS = {"lrn.forward": forward, "lrn.backward": backward}
