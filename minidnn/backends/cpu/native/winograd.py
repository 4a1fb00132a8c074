"""Winograd's 3x3 convolutions at stride 1 (winograd.c), offered before oneDNN's where it pays, else behind: a
third to a quarter of the multiplications, for a workspace of transformed filters and tiles.

F(4x4,3x3) forward and backward-data, F(3x3,4x4) backward-filter (Lavin and Gray, "Fast Algorithms for Convolutional
Neural Networks", CVPR 2016, section 4), both at the points 0, +-sqrt(1/2), +-sqrt(2) and infinity. One call is the
whole pass: transforms and products of a block of tiles at a time, the blocks (or, where all tiles are summed, the
products) shared among threads. No sum depends on how: bits are the same for any number of threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.dnnl import Call
from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.native import Native, bound
from minidnn.backends.cpu.recipe import Recipe, Scratch
from minidnn.program import Op

NAME = "winograd4"
STEP = 4  # pixels from tile to tile
# Tiles that are transformed, multiplied and transformed back together: as many as make the filters' way from
# memory worth it, as few as leave the tiles in the second-level cache.
BLOCK = 48
# In backward-filter the threads wait for each other after each block, and the sums go to memory and back: at least so
# many tiles, and where channels are few as many as so many bytes hold.
BLOCK_OF_SUMS, BYTES_OF_SUMS = 72, 4 << 20
POINTS = 36


class Geometry(ctypes.Structure):
    """As in winograd.c."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("n", "h", "w", "c", "to_h", "to_w", "to_c", "pad_h", "pad_w", "turned", "relu", "block", "threads")
    )


def recipes(native: Native, op: Op) -> list[Recipe]:
    """One for each pass of a 3x3 convolution at stride 1, undilated, ungrouped, padded by at most 2; else none."""
    a = op.attrs
    if (a.kernel, a.stride, a.dilation, a.group) != ((3, 3), (1, 1), (1, 1), 1) or max(a.pad) > 2:
        return []
    if op.kind in ("convolution.forward", "convolution.forward_relu"):
        relu = op.kind.endswith("relu")
        return [_convolution(native, op.reads[0].shape, op.writes[0].shape, a.pad, turned=False, relu=relu)]
    if op.kind == "convolution.backward_data":
        opposite = tuple(2 - p for p in a.pad)
        return [_convolution(native, op.reads[1].shape, op.writes[0].shape, opposite, turned=True)]
    return [_gradient(native, op.reads[0].shape, op.reads[1].shape, a.pad)]


def _convolution(
    native: Native, source: Sequence[int], target: Sequence[int], pad: Sequence[int], turned: bool, relu: bool = False
) -> Recipe:
    tiles = _tiles(target)
    blocks = -(-tiles // BLOCK)
    blocks += -blocks % native.threads  # each has as much to do
    block = -(-tiles // blocks)
    geometry = _geometry(source, target, pad, block + block % 2, native.threads, turned, relu)  # rows go by two
    scratch = Scratch()
    piece = scratch.take(native.bytes("winograd_convolve_bytes", geometry))
    run = native.function("winograd_convolve")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        x, w = (reads[1], reads[0]) if turned else reads[:2]
        bias = address(reads[2]) if len(reads) == 3 else 0
        return [bound(run, geometry, address(x), address(w), bias, address(writes[0]), piece.address(workspace))]

    return scratch.recipe(NAME, bind)


def _gradient(native: Native, x: Sequence[int], dy: Sequence[int], pad: Sequence[int]) -> Recipe:
    held = BYTES_OF_SUMS // (POINTS * 4 * (x[1] + dy[1]))
    geometry = _geometry(x, dy, pad, min(max(BLOCK_OF_SUMS, held), _tiles(dy)), native.threads)
    scratch = Scratch()
    piece = scratch.take(native.bytes("winograd_gradient_bytes", geometry))
    run = native.function("winograd_gradient")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        return [bound(run, geometry, *(address(t) for t in (*reads, *writes)), piece.address(workspace))]

    return scratch.recipe(NAME, bind)


def _geometry(
    source: Sequence[int],
    target: Sequence[int],
    pad: Sequence[int],
    block: int,
    threads: int,
    turned: bool = False,
    relu: bool = False,
) -> Geometry:
    """Of logical shapes N, C, H, W."""
    n, c, h, w = source
    _, to_c, to_h, to_w = target
    return Geometry(n, h, w, c, to_h, to_w, to_c, *pad, turned, relu, block, threads)


def _tiles(shape: Sequence[int]) -> int:
    """That cover images N, C, H, W."""
    return shape[0] * -(-shape[2] // STEP) * -(-shape[3] // STEP)


def _pays(op: Op) -> bool:
    """Whether the transforms cost less than the products they save. Measured on one thread of a Zen 3 beside oneDNN's
    kernels: with 16 channels on both sides and 32 tiles for each filter's transform it breaks even."""
    w, result = {
        "convolution.backward_data": (op.reads[0], op.writes[0]),
        "convolution.backward_filter": (op.writes[0], op.reads[1]),
    }.get(op.kind, (op.reads[1], op.writes[0]))
    return min(w.shape[:2]) >= 16 and _tiles(result.shape) >= 32


def first(native: Native, op: Op) -> list[Recipe]:
    return recipes(native, op) if _pays(op) else []


def more(native: Native, op: Op) -> list[Recipe]:
    return [] if _pays(op) else recipes(native, op)


PASSES = (
    "convolution.forward",
    "convolution.forward_relu",
    "convolution.backward_data",
    "convolution.backward_filter",
)
FIRST = dict.fromkeys(PASSES, first)
MORE = dict.fromkeys(PASSES, more)
