"""Images in another size: each place of the result lies at a place of the image, perhaps between two of its pixels.

Along an axis, place i of the result lies i * a.step / a.over pixels behind pixel a.begin. That is a ratio of two
integers, so that no rounding moves it. NEAREST takes the pixel at or before it. BILINEAR takes both neighbours, each by
its nearness; where the place is a pixel, that alone.
"""

from __future__ import annotations

import numpy as np


def along(a, k, out):
    """For the `out` places along image axis k: (the pixel at or before each place, the distance behind it, below 1)."""
    at = np.arange(out) * a.step[k]
    return a.begin[k] + at // a.over[k], (at % a.over[k]) / a.over[k]


def between(x, a, axis, out):
    """x with `out` places along an axis, 2 or 3, instead of its pixels."""
    first, behind = along(a, axis - 2, out)
    if a.method == "NEAREST":
        return x.take(first, axis)
    behind = behind.astype(x.dtype).reshape((-1, 1) if axis == 2 else (1, -1))
    following = x.take(first + (behind.ravel() > 0), axis)
    return (1 - behind) * x.take(first, axis) + np.where(behind > 0, behind * following, 0)


def forward(a, reads, writes):
    """x -> y."""
    (x,), (y,) = reads, writes
    y[...] = between(between(x, a, 2, y.shape[2]), a, 3, y.shape[3])


def gathered(dy, a, axis, size):
    """The gradient along an axis: each of `size` pixels gets the parts that the places took of it."""
    first, behind = along(a, axis - 2, dy.shape[axis])
    dx = np.zeros((*dy.shape[:axis], size, *dy.shape[axis + 1 :]), dy.dtype)
    to, of = np.moveaxis(dx, axis, 0), np.moveaxis(dy, axis, 0)
    for i, (pixel, part) in enumerate(zip(first, behind, strict=True)):
        if a.method == "NEAREST" or part == 0:
            to[pixel] += of[i]
        else:
            to[pixel] += (1 - dy.dtype.type(part)) * of[i]
            to[pixel + 1] += dy.dtype.type(part) * of[i]
    return dx


def backward(a, reads, writes):
    """dy -> dx; pixels that no place took from get 0."""
    (dy,), (dx,) = reads, writes
    dx[...] = gathered(gathered(dy, a, 2, dx.shape[2]), a, 3, dx.shape[3])


KINDS = {"resize.forward": forward, "resize.backward": backward}
