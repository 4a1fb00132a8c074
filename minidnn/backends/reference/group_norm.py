"""GroupNorm and InstanceNorm: y = (x - mean) * inverse (* gamma + beta), group by group of each sample."""

from __future__ import annotations

import numpy as np


def grouped(x, a):
    """(N, groups, channels of a group, the rest), and the axes of a group."""
    n, c = x.shape[:2]
    return x.reshape(n, a.groups, c // a.groups, -1)


def over(v, x, a):
    """A number for each channel, in a shape that broadcasts over `grouped`."""
    return v.reshape(1, a.groups, -1, 1)


def forward(a, reads, writes):
    """x (gamma beta) -> y inverse mean."""
    (x, *scale), (y, inverse, mean) = reads, writes
    rows = grouped(x, a)
    middle = rows.mean((2, 3), keepdims=True)
    away = rows - middle
    factor = 1 / np.sqrt((away**2).mean((2, 3), keepdims=True) + a.eps)
    normalized = away * factor
    if scale:
        normalized = normalized * over(scale[0], x, a) + over(scale[1], x, a)
    y[...] = normalized.reshape(x.shape)
    inverse[...], mean[...] = factor.reshape(inverse.shape), middle.reshape(mean.shape)


def backward(a, reads, writes):
    """x dy inverse mean (gamma) -> products sums (dx).

    products, sums: of each sample and channel the sums of dy n and of dy, where n is the normalized x
    dx = inverse (g - mean(g) - n mean(g n)), where g is dy (* gamma)"""
    (x, dy, inverse, mean, *gamma), (products, sums, *dx) = reads, writes
    factor, middle = (v.reshape(*v.shape, 1, 1) for v in (inverse, mean))
    n, g = (grouped(x, a) - middle) * factor, grouped(dy, a)
    products[...], sums[...] = ((v.sum(3)).reshape(products.shape) for v in (g * n, g))
    if dx:
        g = g * over(gamma[0], x, a) if gamma else g
        level, along = (v.mean((2, 3), keepdims=True) for v in (g, g * n))
        dx[0][...] = (factor * (g - level - n * along)).reshape(x.shape)


KINDS = {"group_norm.forward": forward, "group_norm.backward": backward}
