"""ReLU and its gradient."""

from __future__ import annotations

import numpy as np


def rectified(x, slope=0.0):
    """x where it is positive, slope * x elsewhere. Adding 0 turns the -0 that a slope of 0 makes into +0, which packing
    (memory/execution/compression.py) leaves out."""
    return np.where(x > 0, x, slope * x + 0)


def passed(saved, dy, slope=0.0):
    """The gradient: dy where `saved` is positive, slope * dy elsewhere. `saved` is x, y or the mask."""
    return np.where(saved > 0, dy, slope * dy)


def relu_forward(a, reads, writes):
    """x -> y (mask): y = x where x > 0, slope * x elsewhere; mask = x > 0, uint8."""
    (x,), (y, *mask) = reads, writes
    if mask:  # before y, which may have the bytes of x
        mask[0][...] = x > 0
    y[...] = rectified(x, a.negative_slope)


def relu_backward(a, reads, writes):
    """dx = dy where x > 0, slope * dy elsewhere. y has the sign of x unless the slope is negative."""
    (saved, *_, dy), (dx,) = reads, writes
    dx[...] = passed(saved, dy, a.negative_slope)


KINDS = {"relu.forward": relu_forward, "relu.backward": relu_backward}
