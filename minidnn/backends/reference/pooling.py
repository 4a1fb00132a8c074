"""Pooling with Caffe's windows, which may reach over the bottom and right edges, where they are clipped."""

from __future__ import annotations

import numpy as np

from minidnn.backends.reference.activation import passed


def padded_shape(x, a, out):
    """H and W of an array that contains every window, also those that reach over an edge of the padded x."""
    reach = ((o - 1) * s + k for o, s, k in zip(out, a.stride, a.kernel, strict=True))
    return tuple(max(r, n + 2 * p) for r, n, p in zip(reach, x.shape[2:], a.pad, strict=True))


def padded(x, a, out, fill):
    """An array of `padded_shape` with x in it and `fill` around."""
    area = np.full((*x.shape[:2], *padded_shape(x, a, out)), fill, x.dtype)
    inside(area, x, a)[...] = x
    return area


def inside(area, x, a):
    """The part of a padded array that has x, a view."""
    (ph, pw), (h, w) = a.pad, x.shape[2:]
    return area[:, :, ph : ph + h, pw : pw + w]


def taps(area, a, out):
    """For each place in a window, row by row: the padded array's elements at that place of all windows, a view
    (N, C, oh, ow)."""
    (sh, sw), (oh, ow) = a.stride, out
    for i, j in np.ndindex(a.kernel):
        yield area[:, :, i : i + sh * (oh - 1) + 1 : sh, j : j + sw * (ow - 1) + 1 : sw]


def maximum(x, a, out):
    """(the largest value of each window, its place in the window). Of equal values the first place counts. NaN is the
    largest, and of several NaN the last place counts."""
    best = np.full((*x.shape[:2], *out), -np.inf, x.dtype)
    index = np.zeros(best.shape, np.int32)
    for k, tap in enumerate(taps(padded(x, a, out, -np.inf), a, out)):
        larger = (tap > best) | np.isnan(tap)
        np.copyto(best, tap, where=larger)
        np.copyto(index, k, where=larger)
    return best, index


def divisors(shape, a, out):
    """AVE's divisors (oh, ow): the places of each window clipped to H + p and W + p. So padding counts, and the part of
    a window beyond it does not."""
    sides = []
    for o, n, k, s, p in zip(out, shape, a.kernel, a.stride, a.pad, strict=True):
        start = np.arange(o) * s - p
        sides.append(np.minimum(start + k, n + p) - start)
    return np.outer(*sides)


def forward(a, reads, writes):
    """y = max or mean of each window; the index of a maximum is kh_i * kw + kw_i."""
    (x,), (y, *index) = reads, writes
    out = y.shape[2:]
    if a.method == "AVE":
        y[...] = sum(taps(padded(x, a, out, 0), a, out)) / divisors(x.shape[2:], a, out).astype(x.dtype)
        return
    best, places = maximum(x, a, out)
    y[...] = best
    if index:
        index[0][...] = places


def backward(a, reads, writes):
    """dx: AVE spreads each dy evenly over its window, and MAX gives it to the window's maximum."""
    (*saved, dy), (dx,) = reads, writes
    out = dy.shape[2:]
    area = np.zeros((*dx.shape[:2], *padded_shape(dx, a, out)), dx.dtype)
    if a.method == "AVE":
        share = dy / divisors(dx.shape[2:], a, out).astype(dy.dtype)
        for tap in taps(area, a, out):
            tap += share
    else:
        index = saved[0] if a.saved == "index" else maximum(saved[0], a, out)[1]
        for k, tap in enumerate(taps(area, a, out)):
            tap += np.where(index == k, dy, 0)
    dx[...] = inside(area, dx, a)


def backward_relu(a, reads, writes):
    """index y dy -> dx: the pooling's gradient where the maximum is positive, else 0 (NaN if it is not finite)."""
    (index, y, dy), (dx,) = reads, writes
    positive = np.empty_like(dx)
    backward(a, [index, (y > 0).astype(dx.dtype)], [positive])
    backward(a, [index, dy], [dx])
    dx[...] = passed(positive, dx)


KINDS = {"pooling.forward": forward, "pooling.backward": backward, "pooling.backward_relu": backward_relu}
