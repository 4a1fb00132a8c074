"""Windows as columns, rows by their numbers, and by how far two places are apart: Im2col, BatchReindex,
RelativePositionBias."""

from __future__ import annotations

import numpy as np

from minidnn.layers.relative_position_bias import apart, hidden


def im2col(a, reads, writes):
    """x -> y: the elements of each window, 0 in the padding."""
    (x,), (y,) = reads, writes
    padded = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in a.pad)))
    for column, seen in columns(a, y, padded):
        column[...] = seen


def im2col_backward(a, reads, writes):
    """dy -> dx: for each element the sum over the windows that have it, by the kernel's elements in their order."""
    (dy,), (dx,) = reads, writes
    (top, left), (h, w) = a.pad, dx.shape[2:]
    padded = np.zeros((*dx.shape[:2], h + 2 * top, w + 2 * left), dx.dtype)
    for column, seen in columns(a, dy, padded):
        seen += column
    dx[...] = padded[:, :, top : top + h, left : left + w]


def columns(a, y, x):
    """For each element of the kernel, two views: its columns of y, and the elements of the padded x that they hold."""
    n, _, *size = y.shape
    kh, kw = a.kernel
    parts = y.reshape(n, x.shape[1], kh, kw, *size)  # a view, since it only divides an axis
    for i in range(kh):
        for j in range(kw):
            begin = i * a.dilation[0], j * a.dilation[1]
            rows, cols = (slice(b, b + (o - 1) * s + 1, s) for b, o, s in zip(begin, size, a.stride, strict=True))
            yield parts[:, :, i, j], x[:, :, rows, cols]


def forward(a, reads, writes):
    """x index -> y: row i of y is row index[i] of x. The indices may have several axes; i counts them in their
    order."""
    x, index = reads
    (y,) = writes
    y[...] = x[row_numbers(index, len(x)).reshape(-1)].reshape(y.shape)


def backward(a, reads, writes):
    """index dy -> dx: row i of dx is the sum of those rows k of dy, in their order, where index[k] is i."""
    (index, dy), (dx,) = reads, writes
    dx[...] = 0
    np.add.at(dx, row_numbers(index, len(dx)).reshape(-1), dy.reshape(-1, *dx.shape[1:]))


def row_numbers(index, rows):
    """The numbers of rows themselves. Raises ValueError for one of no row."""
    wrong = np.flatnonzero((index < 0) | (index >= rows))
    if wrong.size:
        k = wrong[0]
        raise ValueError(f"number {index.flat[k]} (at place {k}) names none of the {rows} rows")
    return index


def relative_bias(a, reads, writes):
    """w -> y: for each window and head (T, T), the rows of w by how far queries and keys are apart."""
    (w,), (y,) = reads, writes
    each = y.reshape(a.down, a.across, a.heads, *y.shape[1:])
    each[...] = w[apart(a)].transpose(2, 0, 1)
    if a.shift:
        each += np.where(hidden(a), y.dtype.type(a.hidden), y.dtype.type(0))[:, :, None]


def relative_bias_backward(a, reads, writes):
    """dy -> dw: the sums of the numbers whose queries and keys are equally far apart, of all windows."""
    (dy,), (dw,) = reads, writes
    sums = dy.reshape(-1, a.heads, *dy.shape[1:]).sum(0)
    dw[...] = 0
    np.add.at(dw, apart(a), sums.transpose(1, 2, 0))


KINDS = {
    "im2col.forward": im2col,
    "im2col.backward": im2col_backward,
    "batch_reindex.forward": forward,
    "batch_reindex.backward": backward,
    "relative_bias.forward": relative_bias,
    "relative_bias.backward": relative_bias_backward,
}
