"""Element-wise kernels: sums, products and maxima of tensors of one shape, and copies."""

from __future__ import annotations

import numpy as np

from minidnn.backends.reference.activation import passed, rectified
from minidnn.backends.reference.multi_tensor import multi_tensor


def copy(a, reads, writes):
    """y = x."""
    writes[0][...] = reads[0]


def cast(a, reads, writes):
    """y = x in y's format, times the scale if there is one."""
    x, *scale = reads
    writes[0][...] = x * scale[0][0] if scale else x


def eltwise_forward(a, reads, writes):
    """x1 .. xn -> y (which): the sum with coefficients, the product, or the maximum; `which` is the maximum's index."""
    y, *which = writes
    if a.operation == "SUM":
        total = a.coeff[0] * reads[0]
        for c, x in zip(a.coeff[1:], reads[1:], strict=True):
            total = total + c * x
    elif a.operation == "PROD":
        total = reads[0]
        for x in reads[1:]:
            total = total * x
    else:
        total, index = maximum(reads)
        if which:
            which[0][...] = index
    y[...] = total


def eltwise_forward_relu(a, reads, writes):
    """x1 .. xn -> y: the sum with coefficients where it is positive, else 0."""
    eltwise_forward(a, reads, writes)
    writes[0][...] = rectified(writes[0])


def maximum(xs):
    """(the largest value, the index of its tensor), for each element. NaN counts as the largest.

    If the first two are equal, Caffe takes the second; of later equals it takes the first. After ReLUs, where both are
    often 0, this decides where the gradient goes."""
    first, second, *others = xs
    takes = (first > second) | np.isnan(first)
    best, index = np.where(takes, first, second), np.where(takes, 0, 1)
    for i, x in enumerate(others, 2):
        takes = (x > best) | np.isnan(x)
        best, index = np.where(takes, x, best), np.where(takes, i, index)
    return best, index


def eltwise_backward(a, reads, writes):
    """The gradient dx of bottom a.index, from dy (SUM), the other bottoms and dy (PROD), or which and dy (MAX)."""
    (*saved, dy), (dx,) = reads, writes
    if a.operation == "SUM":
        dx[...] = a.coeff[a.index] * dy
    elif a.operation == "PROD":
        product = dy
        for x in saved:
            product = product * x
        dx[...] = product
    else:
        dx[...] = np.where(saved[0] == a.index, dy, 0)


def add(a, reads, writes):
    """c = a + b."""
    np.add(reads[0], reads[1], out=writes[0])


def fill(a, reads, writes):
    """(scale) -> dx: the value in each element, times the scale if there is one."""
    value = writes[0].dtype.type(a.value)
    writes[0].fill(value * reads[0][0] if reads else value)


def add_slice(a, reads, writes):
    """c = x + b, where x is a slice of a tensor with more channels: those from a.start on, as many as b has."""
    whole, b = reads
    np.add(whole[:, a.start : a.start + b.shape[1]], b, out=writes[0])


def total(a, reads, writes):
    """dx1 .. dxn -> dx = (dx1 + dx2) + ..."""
    writes[0][...] = sum(reads[1:], start=reads[0])


def total_relu(a, reads, writes):
    """y dx1 .. dxn -> dx: the sum where y > 0, else 0."""
    y, *parts = reads
    writes[0][...] = passed(y, sum(parts[1:], start=parts[0]))


KINDS = {
    "identity.forward": copy,
    "cast.forward": cast,
    "cast.forward_multi_tensor": multi_tensor(cast),
    "cast.backward": cast,
    "eltwise.forward": eltwise_forward,
    "eltwise.forward_relu": eltwise_forward_relu,
    "eltwise.backward": eltwise_backward,
    "gradient.add": add,
    "gradient.add_slice": add_slice,
    "gradient.fill": fill,
    "gradient.sum": total,
    "gradient.sum_relu": total_relu,
}
