"""Convolution with one filter per channel (depthwise.c), as in MobileNet: any kernel, stride, padding and dilation.

It moves memory more than it computes. So each pass reads and writes every image once, a fused ReLU costs nothing, and
a large result goes past the caches.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.program import Op

PIECES = 16  # most partial sums of backward-filter
SHARE = 8  # an image has at least this many times the elements of all partial sums, or there is one sum


class Geometry(Mirrored):
    twin = "depthwise"

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "n", "c", "h", "w", "to_h", "to_w",
            "kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w",
            "relu", "pieces", "threads",
        )
    )  # fmt: skip


FUNCTIONS = {
    "convolution.forward": "depthwise_forward",
    "convolution.forward_relu": "depthwise_forward",
    "convolution.backward_data": "depthwise_backward",
    "convolution.backward_filter": "depthwise_filter",
}


def recipes(native: Native, op: Op) -> list[Recipe]:
    """One recipe for a pass of a convolution for which this way pays."""
    a, read, written = op.attrs, op.reads[0].shape, op.writes[0].shape
    if op.kind == "convolution.backward_data":
        read = op.reads[1].shape
    if op.kind == "convolution.backward_filter":
        written = op.reads[1].shape
    n, c, *size = read
    pieces = min(PIECES, n * written[2], size[0] * size[1] * n // (SHARE * a.kernel[0] * a.kernel[1]))
    g = Geometry(
        n, c, *size, *written[2:], *a.kernel, *a.stride, *a.pad, *a.dilation,
        op.kind.endswith("_relu"), max(1, pieces), native.threads,
    )  # fmt: skip
    name = FUNCTIONS[op.kind]
    scratch = Scratch()
    piece = scratch.take(native.bytes("depthwise_filter_bytes" if name == "depthwise_filter" else "depthwise_bytes", g))
    run = native.function(name)
    unbiased = [0] if name == "depthwise_forward" and len(op.reads) == 2 else []

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        given = (*map(address, reads), *unbiased, *map(address, writes))
        return [bound(run, g, *given, piece.address(workspace))]

    return [scratch.recipe(NAME, bind)]


def pays(op: Op) -> bool:
    """Whether each channel of a convolution has one filter and one output: then this is its only algorithm."""
    x, y = (op.writes[0], op.reads[1]) if op.kind == "convolution.backward_data" else (op.reads[0], op.writes[0])
    if op.kind == "convolution.backward_filter":
        y = op.reads[1]
    return op.attrs.group > 1 and op.attrs.group == x.shape[1] == y.shape[1]
