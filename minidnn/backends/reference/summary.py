"""Reduction and ArgMax: a few numbers for each row."""

from __future__ import annotations

import numpy as np


def reduction_forward(a, reads, writes):
    """x -> y: coeff * the sum of each row, of its elements, their absolute values or their squares."""
    (x,), (y,) = reads, writes
    terms = {"SUM": lambda: x, "ASUM": lambda: np.abs(x), "SUMSQ": lambda: x * x}[a.operation]()
    y[...] = (a.coeff * terms.sum(tuple(range(a.axis, x.ndim)))).reshape(y.shape)


def reduction_backward(a, reads, writes):
    """dy -> dx = coeff dy (SUM); x dy -> dx = coeff dy sign(x) (ASUM), or 2 coeff dy x (SUMSQ)."""
    (*saved, dy), (dx,) = reads, writes
    g = a.coeff * dy.reshape(*dx.shape[: a.axis], *[1] * (dx.ndim - a.axis))
    if a.operation == "SUM":
        dx[...] = g
    else:
        dx[...] = g * (np.sign(saved[0]) if a.operation == "ASUM" else 2 * saved[0])


def argmax(a, reads, writes):
    """x -> y: the indices or values of the top_k largest elements of each row, the largest first. For a whole sample:
    the indices, and behind them the values if out_max_val. Of equal elements the last comes first; NaN is the largest.
    """
    (x,), (y,) = reads, writes
    rows = x.reshape(len(x), -1) if a.axis is None else np.moveaxis(x, a.axis, -1)
    backwards = rows[..., ::-1]
    order = np.lexsort((-backwards, ~np.isnan(backwards)), -1)[..., : a.top_k]  # by the last key, then by the first
    index, values = rows.shape[-1] - 1 - order, np.take_along_axis(backwards, order, -1)
    if a.axis is None:
        y[...] = np.stack([index, values] if a.out_max_val else [index], 1).reshape(y.shape)
    else:
        y[...] = np.moveaxis(values if a.out_max_val else index, -1, a.axis)


KINDS = {
    "reduction.forward": reduction_forward,
    "reduction.backward": reduction_backward,
    "argmax.forward": argmax,
}
