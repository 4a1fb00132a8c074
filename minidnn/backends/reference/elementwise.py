"""Kernels that go element by element, or only move elements."""

from __future__ import annotations

import numpy as np

from minidnn.backends.philox import keep_mask


def rectified(x, slope=0.0):
    """A ReLU. + 0: a slope of 0 makes -0, which packing would not find."""
    return np.where(x > 0, x, slope * x + 0)


def passed(saved, dy, slope=0.0):
    """Its gradient, dy where what was saved is positive."""
    return np.where(saved > 0, dy, slope * dy)


def relu_forward(a, reads, writes):
    (x,), (y, *mask) = reads, writes
    if mask:  # before y, which may lie on x
        mask[0][...] = x > 0
    y[...] = rectified(x, a.negative_slope)


def relu_backward(a, reads, writes):
    """dx = dy where x > 0, slope * dy elsewhere; y tells the sign of x while the slope is not negative."""
    (saved, *_, dy), (dx,) = reads, writes
    dx[...] = passed(saved, dy, a.negative_slope)


def dropout(a, reads, writes):
    """Forward and backward alike: the mask is a function of seed, key and iteration (philox.py)."""
    (x, iteration), (y,) = reads, writes
    keep = keep_mask(x.shape, a.ratio, a.seed, int(iteration[0]), a.key)
    y[...] = np.where(keep, x * x.dtype.type(1 / (1 - a.ratio)), 0)


def copy(a, reads, writes):
    writes[0][...] = reads[0]


def cast(a, reads, writes):
    """y = x in y's format, times the scale if there is one."""
    x, *scale = reads
    writes[0][...] = x * scale[0][0] if scale else x


def reshape(a, reads, writes):
    writes[0][...] = reads[0].reshape(writes[0].shape)


def concat_forward(a, reads, writes):
    np.concatenate(reads, a.axis, out=writes[0])


def concat_backward(a, reads, writes):
    (dy,) = reads
    for dx, start in zip(writes, a.starts, strict=True):
        dx[...] = np.moveaxis(np.moveaxis(dy, a.axis, 0)[start : start + dx.shape[a.axis]], 0, a.axis)


def eltwise_forward(a, reads, writes):
    y, *which = writes
    if a.operation == "SUM":
        total = a.coeff[0] * reads[0]
        for c, x in zip(a.coeff[1:], reads[1:], strict=True):
            total = total + c * x
    elif a.operation == "PROD":
        total = reads[0]
        for x in reads[1:]:
            total = total * x
    else:
        total, index = maximum(reads)
        if which:
            which[0][...] = index
    y[...] = total


def maximum(xs):
    """(the largest, which it is). Among equals Caffe takes the second of the first two, then the first: after ReLUs,
    where both are often 0, it matters where the gradient goes. NaN is the largest of all."""
    first, second, *others = xs
    takes = (first > second) | np.isnan(first)
    best, index = np.where(takes, first, second), np.where(takes, 0, 1)
    for i, x in enumerate(others, 2):
        takes = (x > best) | np.isnan(x)
        best, index = np.where(takes, x, best), np.where(takes, i, index)
    return best, index


def eltwise_backward(a, reads, writes):
    (*saved, dy), (dx,) = reads, writes
    if a.operation == "SUM":
        dx[...] = a.coeff[a.index] * dy
    elif a.operation == "PROD":
        product = dy
        for x in saved:
            product = product * x
        dx[...] = product
    else:
        dx[...] = np.where(saved[0] == a.index, dy, 0)


def add(a, reads, writes):
    np.add(reads[0], reads[1], out=writes[0])
