"""Convolution as matrix products over unfolded windows, for some images at a time."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from minidnn.backends.reference.activation import rectified
from minidnn.backends.reference.products import products, room

UNFOLDED = 1 << 22  # elements of windows in memory at once; the windows of a whole batch of VGG would take gigabytes


def windows(x, a, out):
    """Every window of the padded x: (N, group, C/group * kh * kw, oh * ow)."""
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = a.kernel, a.stride, a.pad, a.dilation
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    view = sliding_window_view(padded, (dh * (kh - 1) + 1, dw * (kw - 1) + 1), (2, 3))[:, :, ::sh, ::sw, ::dh, ::dw]
    n, c = x.shape[:2]
    oh, ow = out
    result = room((n, a.group, c // a.group * kh * kw, oh * ow), x.dtype)
    result.reshape(n, c, kh, kw, oh, ow)[...] = view[:, :, :oh, :ow].transpose(0, 1, 4, 5, 2, 3)
    return result


def batches(x, w, y):
    """The batches of images whose windows are unfolded together: slices of N, which depend on shapes alone."""
    n, c = x.shape[:2]
    step = max(1, UNFOLDED // max(c * w[0, 0].size * y[0, 0].size, w.size))
    return [slice(i, i + step) for i in range(0, n, step)]


def forward(a, reads, writes):
    """y[n, o, h, w] = sum over c, i, j of w[o, c, i, j] x[n, c, h', w'] (+ b[o]). Here h' = s h + d i - p; w' alike."""
    (x, w, *b), (y,) = reads, writes
    rows = w.reshape(1, a.group, len(w) // a.group, -1)
    for some in batches(x, w, y):
        y[some] = products(rows, windows(x[some], a, y.shape[2:])).reshape(y[some].shape)
    if b:
        y += b[0][:, None, None]


def forward_relu(a, reads, writes):
    """y = ReLU(forward), with zeros and NaN as in relu.forward."""
    forward(a, reads, writes)
    writes[0][...] = rectified(writes[0])


def backward_filter(a, reads, writes):
    """dw[o, c, i, j] = sum over n, h, w of dy[n, o, h, w] x[n, c, h', w']. Here h' = s h + d i - p; w' alike."""
    (x, dy), (dw,) = reads, writes
    rows = dy.reshape(len(dy), a.group, dy.shape[1] // a.group, -1)
    total = np.zeros((), dw.dtype)
    for some in batches(x, dw, dy):
        columns = windows(x[some], a, dy.shape[2:])
        total = total + products(rows[some], columns, transpose_right=True).sum(0)
    dw[...] = total.reshape(dw.shape)


def backward_data(a, reads, writes):
    """dx: each dy[n, o, h, w] adds dy w[o, c, i, j] to dx[n, c, h', w']. Here h' = s h + d i - p; w' alike."""
    (w, dy), (dx,) = reads, writes
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = a.kernel, a.stride, a.pad, a.dilation
    n, c, h, width = dx.shape
    oh, ow = dy.shape[2:]
    weights = w.reshape(1, a.group, len(w) // a.group, -1)
    rows = dy.reshape(n, a.group, dy.shape[1] // a.group, oh * ow)
    for some in batches(dx, w, dy):
        columns = products(weights, rows[some], transpose_left=True).reshape(-1, c, kh, kw, oh, ow)
        padded = np.zeros((len(columns), c, h + 2 * ph, width + 2 * pw), dx.dtype)
        for i, j in np.ndindex(kh, kw):
            top, left = dh * i, dw * j
            met = padded[:, :, top : top + sh * (oh - 1) + 1 : sh, left : left + sw * (ow - 1) + 1 : sw]
            met += columns[:, :, i, j]
        dx[some] = padded[:, :, ph : ph + h, pw : pw + width]


KINDS = {
    "convolution.forward": forward,
    "convolution.forward_relu": forward_relu,
    "convolution.backward_filter": backward_filter,
    "convolution.backward_data": backward_data,
}
