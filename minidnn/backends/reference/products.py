"""Matrix products in which a sample's numbers depend on that sample alone, whatever BLAS NumPy has.

A BLAS chooses its kernels, and with them the order of sums, by the shape of the whole product. So a row's bits depend
on how many rows there are. With OpenBLAS's kernels for Haswell, Zen and Sandy Bridge they also depend on where the row
stands among the others, so blocks of a fixed number of rows would not help. Here each sample is a product of its own.
Its shape, strides and alignment are the same beside any number of samples, and so are the kernels that compute it. That
is why parts of a batch have the bytes of the whole.
"""

from __future__ import annotations

import math

import numpy as np

from minidnn.memory.parts.kinds import TOKENS

LINE = 64  # bytes to which samples are aligned: a line of the cache, and the longest vector of a CPU
CACHED = 1 << 18  # elements of a matrix that stay in the cache while all samples are multiplied by them


def samples(x, k):
    """The samples of x (n, ..., k), as (n, rows, k). A single axis is one sample with one row."""
    return x.reshape(len(x) if x.ndim > 1 else 1, -1, k)


def room(shape, dtype=np.float32):
    """A new array (n, ...) of any values, each of whose n samples is contiguous and begins at a multiple of LINE."""
    n, size, line = shape[0], math.prod(shape[1:]), LINE // np.dtype(dtype).itemsize
    pitch = -(-size // line) * line
    space = np.empty(n * pitch + line, dtype)
    first = -space.ctypes.data % LINE // space.itemsize
    return space[first : first + n * pitch].reshape(n, pitch)[:, :size].reshape(shape)


def laid_out(x):
    """These samples (n, ...) as `room` lays them out: x itself if they lie so, else a copy."""
    if x[:1].flags.c_contiguous and x.ctypes.data % LINE == 0 and (len(x) < 2 or x.strides[0] % LINE == 0):
        return x
    copy = room(x.shape, x.dtype)
    copy[...] = x
    return copy


def products(left, right, transpose_left=False, transpose_right=False):
    """left[i] @ right[i] for each sample i: (n, ..., rows, depth) and (n, ..., depth, columns) make (n, ..., rows,
    columns), a new array. If one of them has a single sample, that one is multiplied by all of the other's.

    transpose_left, transpose_right: whether the matrices in its last two axes are given as their transposes
    """
    left, right = laid_out(left), laid_out(right)
    left = left.swapaxes(-1, -2) if transpose_left else left
    right = right.swapaxes(-1, -2) if transpose_right else right
    n = max(len(left), len(right))
    result = room((n, *left.shape[1:-1], right.shape[-1]), left.dtype)
    for i in range(n):
        np.matmul(left[i % len(left)], right[i % len(right)], out=result[i])
    return result


def by_matrix(x, w, transpose=False):
    """x[i] @ w for each sample i: (n, rows, depth) and (depth, columns) make (n, rows, columns), a new array.

    Columns of w are taken some at a time, so that w is read from memory once, and not for each sample. Rows of x are
    taken TOKENS at a time, so that those of a part of a sequence have the bytes of the whole (memory/parts/kinds.py).

    transpose: whether w is given as (columns, depth)
    """
    columns, depth = w.shape if transpose else w.shape[::-1]
    x, result = laid_out(x), np.empty((*x.shape[:-1], columns), x.dtype)
    step = max(1, CACHED // depth)
    for i in range(0, columns, step):
        some = laid_out(w[None, i : i + step] if transpose else w[None, :, i : i + step])
        for k in range(0, x.shape[1], TOKENS):
            result[:, k : k + TOKENS, i : i + step] = products(x[:, k : k + TOKENS], some, transpose_right=transpose)
    return result
