"""Channels are axis 1 of an array: numbers for each of them, and the axes of a sum by channel."""

from __future__ import annotations


def per_channel(v, x):
    """v, (C,) or (1,), in a shape that broadcasts over x (N, C, ...)."""
    return v.reshape(1, -1, *(1,) * (x.ndim - 2))


def other_axes(x):
    """All axes of x (N, C, ...) but the channels'."""
    return tuple(k for k in range(x.ndim) if k != 1)
