"""Winograd's 5x5 convolutions at stride 1 (winograd5.c, tiles.h): F(2x2,5x5) forward and backward-data, F(5x5,2x2)
backward-filter, at the same points as those of 3x3 (winograd.py): 9 multiplications for each 25.

Grouped, too. One call is the whole pass, and its bits are the same for any number of threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.dnnl import Call
from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.native import Native, bound
from minidnn.backends.cpu.native.winograd import BLOCK, BLOCK_OF_SUMS, BYTES_OF_SUMS, PASSES, POINTS
from minidnn.backends.cpu.recipe import Recipe, Scratch
from minidnn.program import Op

NAME = "winograd2"
FILTER = 5
STEP = 2  # pixels from tile to tile


class Geometry(ctypes.Structure):
    """As in tiles.h."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "n", "h", "w", "c", "to_h", "to_w", "to_c", "group", "pad_h", "pad_w", "turned", "relu", "block", "threads",
        )
    )  # fmt: skip


def recipes(native: Native, op: Op) -> list[Recipe]:
    """One for each pass of a 5x5 convolution at stride 1, undilated, padded by at most 4; else none."""
    a = op.attrs
    if (a.kernel, a.stride, a.dilation) != ((FILTER, FILTER), (1, 1), (1, 1)) or max(a.pad) >= FILTER:
        return []
    if op.kind == "convolution.backward_filter":
        return [_gradient(native, _geometry(native, op.reads[0].shape, op.reads[1].shape, a.pad, a.group))]
    if op.kind == "convolution.backward_data":
        opposite = [FILTER - 1 - p for p in a.pad]
        geometry = _geometry(native, op.reads[1].shape, op.writes[0].shape, opposite, a.group)
        geometry.turned = True
    else:
        geometry = _geometry(native, op.reads[0].shape, op.writes[0].shape, a.pad, a.group)
        geometry.relu = op.kind.endswith("relu")
    return [_convolution(native, geometry, _tiles(op.writes[0].shape))]


def _convolution(native: Native, geometry: Geometry, tiles: int) -> Recipe:
    blocks = -(-tiles // BLOCK)
    blocks += -blocks % native.threads  # each has as much to do
    geometry.block = -(-tiles // blocks)
    geometry.block += geometry.block % 2  # rows go by two
    scratch = Scratch()
    piece = scratch.take(native.bytes("winograd5x5_convolve_bytes", geometry))
    run, turned = native.function("winograd5x5_convolve"), geometry.turned

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        x, w = (reads[1], reads[0]) if turned else reads[:2]
        bias = address(reads[2]) if len(reads) == 3 else 0
        return [bound(run, geometry, address(x), address(w), bias, address(writes[0]), piece.address(workspace))]

    return scratch.recipe(NAME, bind)


def _gradient(native: Native, geometry: Geometry) -> Recipe:
    held = BYTES_OF_SUMS // (POINTS * 4 * (geometry.c + geometry.to_c))
    tiles = _tiles((geometry.n, geometry.to_c, geometry.to_h, geometry.to_w))
    geometry.block = min(max(BLOCK_OF_SUMS, held), tiles)
    scratch = Scratch()
    piece = scratch.take(native.bytes("winograd5x5_gradient_bytes", geometry))
    run = native.function("winograd5x5_gradient")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        return [bound(run, geometry, *(address(t) for t in (*reads, *writes)), piece.address(workspace))]

    return scratch.recipe(NAME, bind)


def _geometry(native: Native, source: Sequence[int], target: Sequence[int], pad: Sequence[int], group: int) -> Geometry:
    """Of logical shapes N, C, H, W; without a block."""
    n, c, h, w = source
    _, to_c, to_h, to_w = target
    return Geometry(n, h, w, c // group, to_h, to_w, to_c // group, group, *pad, False, False, 0, native.threads)


def _tiles(shape: Sequence[int]) -> int:
    """That cover images N, C, H, W."""
    return shape[0] * -(-shape[2] // STEP) * -(-shape[3] // STEP)


def _pays(op: Op) -> bool:
    """Whether the transforms cost less than the products they save: with 16 channels they do not, measured on one
    thread of a Zen 3 beside oneDNN's kernels, with 32 of each group on both sides they do."""
    w, result = {
        "convolution.backward_data": (op.reads[0], op.writes[0]),
        "convolution.backward_filter": (op.writes[0], op.reads[1]),
    }.get(op.kind, (op.reads[1], op.writes[0]))
    return min(w.shape[0] // op.attrs.group, w.shape[1]) >= 32 and _tiles(result.shape) >= 32


def first(native: Native, op: Op) -> list[Recipe]:
    return recipes(native, op) if _pays(op) else []


def more(native: Native, op: Op) -> list[Recipe]:
    return [] if _pays(op) else recipes(native, op)


FIRST = dict.fromkeys(PASSES, first)
MORE = dict.fromkeys(PASSES, more)
