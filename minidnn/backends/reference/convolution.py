"""Convolution as matrix products over unfolded windows, group by group."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def windows(x, a, out):
    """Every window of padded x: (N, group, C/group * kh * kw, oh * ow)."""
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = a.kernel, a.stride, a.pad, a.dilation
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    view = sliding_window_view(padded, (dh * (kh - 1) + 1, dw * (kw - 1) + 1), (2, 3))[:, :, ::sh, ::sw, ::dh, ::dw]
    n, c = x.shape[:2]
    oh, ow = out
    return view[:, :, :oh, :ow].transpose(0, 1, 4, 5, 2, 3).reshape(n, a.group, c // a.group * kh * kw, oh * ow)


def forward(a, reads, writes):
    """y[n, o] = sum over c, i, j of w[o, c, i, j] x[n, c, s h + d i - p, s w + d j - p] (+ b[o])."""
    (x, w, *b), (y,) = reads, writes
    columns = windows(x, a, y.shape[2:])
    rows = w.reshape(a.group, len(w) // a.group, -1)
    y[...] = (rows @ columns).reshape(y.shape)
    if b:
        y += b[0][:, None, None]


def backward_filter(a, reads, writes):
    """dw[o, c, i, j] = sum over n, h, w of dy[n, o, h, w] x[n, c, s h + d i - p, ...]."""
    (x, dy), (dw,) = reads, writes
    columns = windows(x, a, dy.shape[2:])
    rows = dy.reshape(len(dy), a.group, dy.shape[1] // a.group, -1)
    groups = [np.tensordot(rows[:, g], columns[:, g], ((0, 2), (0, 2))) for g in range(a.group)]
    dw[...] = np.concatenate(groups).reshape(dw.shape)


def backward_data(a, reads, writes):
    """dx: each dy goes back, through w, to the places of its window."""
    (w, dy), (dx,) = reads, writes
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = a.kernel, a.stride, a.pad, a.dilation
    n, c, h, width = dx.shape
    oh, ow = dy.shape[2:]
    rows = w.reshape(a.group, len(w) // a.group, -1).transpose(0, 2, 1)
    columns = rows @ dy.reshape(n, a.group, dy.shape[1] // a.group, oh * ow)
    columns = columns.reshape(n, c, kh, kw, oh, ow)
    padded = np.zeros((n, c, h + 2 * ph, width + 2 * pw), dx.dtype)
    for i in range(kh):
        for j in range(kw):
            top, left = dh * i, dw * j
            padded[:, :, top : top + sh * (oh - 1) + 1 : sh, left : left + sw * (ow - 1) + 1 : sw] += columns[
                :, :, i, j
            ]
    dx[...] = padded[:, :, ph : ph + h, pw : pw + width]
