"""Moves of elements: Concat and Flatten."""

from __future__ import annotations

import numpy as np


def concat_forward(a, reads, writes):
    """x1 .. xn -> y, along the axis."""
    np.concatenate(reads, a.axis, out=writes[0])


def concat_backward(a, reads, writes):
    """dy -> dx_i ..: each dx_i is the part of dy that begins at its place in `starts` of the axis."""
    (dy,) = reads
    for dx, start in zip(writes, a.starts, strict=True):
        dx[...] = np.moveaxis(np.moveaxis(dy, a.axis, 0)[start : start + dx.shape[a.axis]], 0, a.axis)


def flatten(a, reads, writes):
    """The same elements, in logical order, in another shape."""
    writes[0][...] = reads[0].reshape(writes[0].shape)


KINDS = {
    "concat.forward": concat_forward,
    "concat.backward": concat_backward,
    "flatten.forward": flatten,
    "flatten.backward": flatten,
}
