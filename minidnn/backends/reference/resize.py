"""Images in another size: each place of the result lies at a place of the image, perhaps between two of its pixels.

Along an axis, place i of the result lies i * a.step / a.over pixels behind pixel a.begin. That is a ratio of two
integers, so that no rounding moves it. NEAREST takes the pixel at or before it. BILINEAR takes both neighbours, each by
its nearness, even if that is 0; the last pixel is its own neighbour. A result of the same size is a copy.
"""

from __future__ import annotations

import numpy as np


def along(a, k, out):
    """For the `out` places along image axis k: (the pixel at or before each place, the distance behind it, below 1)."""
    at = np.arange(out) * a.step[k]
    return a.begin[k] + at // a.over[k], (at % a.over[k]) / a.over[k]


def copies(a, out):
    """The part of the image that the result copies, as an index; None: it is resized."""
    if a.method == "NEAREST" or tuple(out) != a.size:
        return None
    return (..., *(slice(begin, begin + size) for begin, size in zip(a.begin, a.size, strict=True)))


def next_to(first, a, k):
    """The pixels behind these ones along image axis k."""
    return np.minimum(first + 1, a.begin[k] + a.size[k] - 1)


def between(x, a, axis, out):
    """x with `out` places along an axis, 2 or 3, instead of its pixels."""
    first, behind = along(a, axis - 2, out)
    if a.method == "NEAREST":
        return x.take(first, axis)
    behind = behind.astype(x.dtype).reshape((-1, 1) if axis == 2 else (1, -1))
    return (1 - behind) * x.take(first, axis) + behind * x.take(next_to(first, a, axis - 2), axis)


def forward(a, reads, writes):
    """x -> y."""
    (x,), (y,) = reads, writes
    part = copies(a, y.shape[2:])
    y[...] = between(between(x, a, 2, y.shape[2]), a, 3, y.shape[3]) if part is None else x[part]


def gathered(dy, a, axis, size):
    """The gradient along an axis: each of `size` pixels gets the parts that the places took of it."""
    first, behind = along(a, axis - 2, dy.shape[axis])
    dx = np.zeros((*dy.shape[:axis], size, *dy.shape[axis + 1 :]), dy.dtype)
    to, of = np.moveaxis(dx, axis, 0), np.moveaxis(dy, axis, 0)
    following = next_to(first, a, axis - 2)
    for i, (pixel, part) in enumerate(zip(first, behind, strict=True)):
        if a.method == "NEAREST":
            to[pixel] += of[i]
        else:
            to[pixel] += (1 - dy.dtype.type(part)) * of[i]
            to[following[i]] += dy.dtype.type(part) * of[i]
    return dx


def backward(a, reads, writes):
    """dy -> dx; pixels that no place took from get 0."""
    (dy,), (dx,) = reads, writes
    part = copies(a, dy.shape[2:])
    if part is None:
        dx[...] = gathered(gathered(dy, a, 2, dx.shape[2]), a, 3, dx.shape[3])
    else:
        dx[...] = 0
        dx[part] = dy


KINDS = {"resize.forward": forward, "resize.backward": backward}
