"""Convolution by implicit GEMM (implicit_gemm.c): a product whose left matrix, the image's windows, is never stored.

It covers any kernel, stride, padding, dilation and group. Backward-data computes windows by a product and adds them up
where they overlap ("col2im").

It serves where oneDNN is slow. One case is few input channels: oneDNN's vectors are over channels and stay mostly
empty, while these are over filters. The other, below AVX-512, is what oneDNN leaves to its reference kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native import gemm
from minidnn.backends.cpu.native.binding import Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.program import Op

NAME = "implicit_gemm"
COL2IM = "col2im"  # the name for backward-data
STRIP_BYTES = 96 << 10  # most bytes of a strip of the image, and as many of its dy: both fit the second-level cache
RUN = 256  # most floats of a run, so that as many rows of a panel of filters fit the first-level cache
# Backward-filter is summed in PIECES pieces, which threads take one by one; in fewer if they would exceed SUM_BYTES.
PIECES, SUM_BYTES = 16, 8 << 20


class Geometry(Mirrored):
    twin = "implicit_gemm"

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "n", "h", "w", "from", "to_h", "to_w", "to", "group",
            "kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w",
            "per_row", "relu", "rows", "pieces", "threads",
        )
    )  # fmt: skip


def recipes(native: Native, op: Op) -> list[Recipe]:
    """One recipe for each pass of a convolution; none where windows are pixels, which need no copying."""
    if gemm.of_pixels(op.attrs):
        return []
    if op.kind == "convolution.backward_filter":
        return [_backward_filter(native, op)]
    if op.kind == "convolution.backward_data":
        return [_backward_data(native, op)]
    return [_forward(native, op)]


def _forward(native: Native, op: Op) -> Recipe:
    geometry = _geometry(native, op.attrs, op.reads[0].shape, op.writes[0].shape)
    geometry.relu = op.kind.endswith("relu")
    scratch = Scratch()
    piece = scratch.take(native.bytes("implicit_gemm_convolve_bytes", geometry))
    run = native.function("implicit_gemm_convolve")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        x, w = reads[:2]
        bias = address(reads[2]) if len(reads) == 3 else 0
        return [bound(run, geometry, address(x), address(w), bias, address(writes[0]), piece.address(workspace))]

    return scratch.recipe(NAME, bind)


def _backward_data(native: Native, op: Op) -> Recipe:
    """The recipe for w dy -> dx. A thread takes one group of one image at a time."""
    geometry = _geometry(native, op.attrs, op.writes[0].shape, op.reads[1].shape)
    geometry.rows = geometry.to_h
    scratch = Scratch()
    piece = scratch.take(native.bytes("implicit_gemm_scatter_bytes", geometry))
    run = native.function("implicit_gemm_scatter")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        w, dy = reads
        return [bound(run, geometry, address(dy), address(w), address(writes[0]), piece.address(workspace))]

    return scratch.recipe(COL2IM, bind)


def _backward_filter(native: Native, op: Op) -> Recipe:
    x, dy = (t.shape for t in op.reads)
    geometry = _geometry(native, op.attrs, x, dy)
    blocks = dy[0] * -(-dy[2] // geometry.rows)
    geometry.pieces = max(1, min(PIECES, blocks, SUM_BYTES // op.writes[0].nbytes))
    scratch = Scratch()
    piece = scratch.take(native.bytes("implicit_gemm_gradient_bytes", geometry))
    run = native.function("implicit_gemm_gradient")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        return [bound(run, geometry, *(address(t) for t in (*reads, *writes)), piece.address(workspace))]

    return scratch.recipe(NAME, bind)


def _geometry(native: Native, a, source: Sequence[int], target: Sequence[int]) -> Geometry:
    """The geometry for the logical shapes (N, C, H, W) of x and y, or of dx and dy."""
    n, c, h, w = source
    _, to, to_h, to_w = target
    row = ((to_w - 1) * a.stride[1] + (a.kernel[1] - 1) * a.dilation[1] + 1) * c // a.group * 4
    more = STRIP_BYTES // row - (a.kernel[0] - 1) * a.dilation[0] - 1
    dy_row = to_w * to // a.group * 4
    rows = min(more // a.stride[0], STRIP_BYTES // dy_row - 1) + 1
    return Geometry(
        n, h, w, c // a.group, to_h, to_w, to // a.group, a.group,
        *a.kernel, *a.stride, *a.pad, *a.dilation,
        _runs_of_row(a, c // a.group), False, min(max(rows, 1), to_h), 1, native.threads,
    )  # fmt: skip


def _runs_of_row(a, channels: int) -> int:
    """The number of runs in a row of a filter. A run is the row, or its largest equal part of at most RUN floats; with
    dilation, one pixel."""
    if a.dilation[1] > 1:
        return a.kernel[1]
    row = a.kernel[1] * channels
    return next(parts for parts in range(1, row + 1) if row % parts == 0 and row // parts <= RUN)


def pays(op: Op) -> bool:
    """Whether a pass is to be the default: rules measured on one thread of a Zen 3.

    Backward-filter is, unless rows of dy are short or a group has few filters; it gains most where channels are few.
    Backward-data is, at stride 1, if most of the factors that oneDNN's kernel multiplies are padding."""
    if op.kind == "convolution.backward_filter":
        outputs = op.writes[0].shape[0] // op.attrs.group
        return op.reads[1].shape[3] >= 8 and outputs >= 32
    if op.kind == "convolution.backward_data":
        dy, dx = op.reads[1].shape, op.writes[0].shape
        return op.attrs.stride == (1, 1) and 2 * dy[2] * dy[3] < dx[2] * dx[3]
    return False
