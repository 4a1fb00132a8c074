"""Pooling with Caffe's windows: they may hang over the bottom and right edge, where they are clipped."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def padded_shape(x, a, out):
    """H and W of an array in which every window, hanging ones too, lies inside."""
    reach = ((o - 1) * s + k for o, s, k in zip(out, a.stride, a.kernel, strict=True))
    return tuple(max(r, n + 2 * p) for r, n, p in zip(reach, x.shape[2:], a.pad, strict=True))


def windows(x, a, out, fill):
    """(N, C, oh, ow, kh * kw), with `fill` outside x."""
    n, c, h, w = x.shape
    (ph, pw), (sh, sw) = a.pad, a.stride
    padded = np.full((n, c, *padded_shape(x, a, out)), fill, x.dtype)
    padded[:, :, ph : ph + h, pw : pw + w] = x
    view = sliding_window_view(padded, a.kernel, (2, 3))[:, :, ::sh, ::sw][:, :, : out[0], : out[1]]
    return view.reshape(*view.shape[:4], -1)


def divisors(shape, a, out):
    """AVE divides by the window clipped to H + p and W + p: the pad before x counts, the overhang does not."""
    sides = []
    for o, n, k, s, p in zip(out, shape, a.kernel, a.stride, a.pad, strict=True):
        start = np.arange(o) * s - p
        sides.append(np.minimum(start + k, n + p) - start)
    return np.outer(*sides)


def forward(a, reads, writes):
    """y = max or mean of each window; the index of a maximum is kh_i * kw + kw_i, the first one's among equals."""
    (x,), (y, *index) = reads, writes
    out = y.shape[2:]
    if a.method == "AVE":
        y[...] = windows(x, a, out, 0).sum(-1) / divisors(x.shape[2:], a, out).astype(x.dtype)
        return
    view = windows(x, a, out, -np.inf)
    y[...] = view.max(-1)
    if index:
        index[0][...] = view.argmax(-1)


def backward(a, reads, writes):
    """AVE spreads dy evenly over its window, MAX gives it to the maximum."""
    (*saved, dy), (dx,) = reads, writes
    (ph, pw), (sh, sw), (kh, kw) = a.pad, a.stride, a.kernel
    oh, ow = dy.shape[2:]
    n, c, h, w = dx.shape
    share = dy / divisors((h, w), a, (oh, ow)).astype(dy.dtype) if a.method == "AVE" else dy
    index = None if a.method == "AVE" else saved[0]
    if a.saved in ("x", "xy"):
        index = windows(saved[0], a, (oh, ow), -np.inf).argmax(-1)
    padded = np.zeros((n, c, *padded_shape(dx, a, (oh, ow))), dx.dtype)
    for i in range(kh):
        for j in range(kw):
            part = share if index is None else np.where(index == i * kw + j, share, 0)
            padded[:, :, i : i + sh * (oh - 1) + 1 : sh, j : j + sw * (ow - 1) + 1 : sw] += part
    dx[...] = padded[:, :, ph : ph + h, pw : pw + w]
