"""Convolution without groups as one product of matrices (matmul.c): each pass of a 1x1 at stride 1, whose pixels are
rows as they lie, and the filter gradient of any other.

dW = dy' X, where the rows of X are the image's windows. They are packed a few hundred at a time and never stored, and
each sum is over all pixels of all images.
"""

from __future__ import annotations

from minidnn.backends.cpu.native import matmul
from minidnn.backends.cpu.native.binding import Native
from minidnn.backends.cpu.native.inner_product import turned_products
from minidnn.backends.cpu.native.matmul import Windows
from minidnn.backends.cpu.recipe import Recipe
from minidnn.program import Op, Tensor

NAME = "gemm"


def recipes(native: Native, op: Op) -> list[Recipe]:
    """The recipes for a pass; none for the others of a convolution whose windows are no pixels, and none for groups."""
    a = op.attrs
    if op.kind == "convolution.backward_filter" and a.group == 1:
        x, dy = op.reads
        if of_pixels(a):
            return turned_products(native, op, dy.shape[1], _pixels(dy), x.shape[1], NAME)
        windows = Windows(*x.shape[2:], x.shape[1], *dy.shape[2:], *a.kernel, *a.stride, *a.pad, *a.dilation)
        width = a.kernel[0] * a.kernel[1] * x.shape[1]
        g = matmul.geometry(native, dy.shape[1], _pixels(dy), width, turned_a=True, windows=windows)
        return matmul.products(native, op, g, swapped=True, name=NAME)
    if not of_pixels(a):
        return []
    if op.kind == "convolution.backward_data":
        dy, dx = op.reads[1], op.writes[0]
        g = matmul.geometry(native, _pixels(dy), dy.shape[1], dx.shape[1])
        return matmul.products(native, op, g, swapped=True, name=NAME)
    x, y = op.reads[0], op.writes[0]
    relu = op.kind.endswith("relu")
    g = matmul.geometry(native, _pixels(x), x.shape[1], y.shape[1], turned_b=True, relu=relu)
    return matmul.products(native, op, g, name=NAME)


def pays(op: Op) -> bool:
    """Whether a pass is to be the default: measured on one thread of a Zen 3, beside implicit GEMM.

    A filter gradient is, where implicit GEMM would add a large sum to memory for a few pixels at a time, unless filters
    or channels are few: then packing takes longer than multiplying."""
    a = op.attrs
    if op.kind != "convolution.backward_filter" or of_pixels(a):
        return of_pixels(a)
    x, dy = op.reads
    narrow = a.stride != (1, 1) or dy.shape[3] < 8
    return a.group == 1 and narrow and x.shape[1] >= 32 and dy.shape[1] >= 64


def of_pixels(a) -> bool:
    """Whether the windows of a convolution with attributes `a` are the image's pixels: a 1x1 at stride 1."""
    return (a.kernel, a.stride, a.pad, a.group) == ((1, 1), (1, 1), (0, 0), 1)


def _pixels(image: Tensor) -> int:
    n, _, h, w = image.shape
    return n * h * w
