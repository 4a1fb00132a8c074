"""Tensors joined and taken apart along an axis, and given another shape: Concat, Slice, Flatten, Reshape."""

from __future__ import annotations

import numpy as np


def concat_forward(a, reads, writes):
    """x1 .. xn -> y: each x_i is the part of y that begins at its place in `starts` of the axis. The rest of y is 0."""
    (y,) = writes
    y[...] = 0
    for x, start in zip(reads, a.starts, strict=True):
        part(y, a.axis, start, x.shape[a.axis])[...] = x


def concat_backward(a, reads, writes):
    """dy -> dx_i ..: each dx_i is the part of dy that begins at its place in `starts` of the axis."""
    (dy,) = reads
    for dx, start in zip(writes, a.starts, strict=True):
        dx[...] = part(dy, a.axis, start, dx.shape[a.axis])


def part(x, axis, start, length):
    """The part of x of this length that begins at `start` of the axis: a view."""
    return np.moveaxis(np.moveaxis(x, axis, 0)[start : start + length], 0, axis)


def flatten(a, reads, writes):
    """The same elements, in logical order, in another shape."""
    writes[0][...] = reads[0].reshape(writes[0].shape)


KINDS = {
    "concat.forward": concat_forward,
    "concat.backward": concat_backward,
    "flatten.forward": flatten,
    "flatten.backward": flatten,
}
