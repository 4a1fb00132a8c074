"""Winograd's convolutions at stride 1 (winograd.h): for a workspace of transformed filters and tiles, a quarter of the
multiplications of 3x3, and 9 for each 25 of 5x5. Offered before oneDNN's where they pay, else behind.

F(4x4,3x3) and F(2x2,5x5) forward and backward-data, F(3x3,4x4) and F(5x5,2x2) backward-filter (Lavin and Gray, "Fast
Algorithms for Convolutional Neural Networks", CVPR 2016, section 4), all at the points 0, +-sqrt(1/2), +-sqrt(2) and
infinity. One call is the whole pass: transforms and products of a block of tiles at a time, the blocks (or, where all
tiles are summed, the products) shared among threads. No sum depends on how: bits are the same for any number of
threads.

Filters are transformed in each call. That is 7 % of the time of VGG-16's forward passes at batch 4, on one thread, and
less at larger ones; kept until backward-data they would take four times the weights' bytes, and lie in an order that
its products do not read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.program import Op

# Tiles that are transformed, multiplied and transformed back together: as many as make the filters' way from
# memory worth it, as few as leave the tiles in the second-level cache.
BLOCK = 48
# In backward-filter the threads wait for each other after each block, and the sums go to memory and back: at least so
# many tiles, and where channels are few as many as so many bytes hold.
BLOCK_OF_SUMS, BYTES_OF_SUMS = 72, 4 << 20
TILE, POINTS = 6, 36
ENOUGH = 32  # tiles, for each filter's transform


@dataclass(frozen=True)
class Size:
    """Filters of filter x filter, by tiles `step` pixels apart. It pays from `least` channels of each group on both
    sides: measured on one thread of a Zen 3 beside oneDNN's kernels."""

    name: str
    filter: int
    least: int

    @property
    def step(self) -> int:
        return TILE + 1 - self.filter

    def tiles(self, shape: Sequence[int]) -> int:
        """That cover images N, C, H, W."""
        return shape[0] * -(-shape[2] // self.step) * -(-shape[3] // self.step)


THREE, FIVE = Size("winograd4", 3, 16), Size("winograd2", 5, 32)
SIZES = {(s.filter, s.filter): s for s in (THREE, FIVE)}


class Geometry(Mirrored):
    twin = "winograd"

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "n", "h", "w", "c", "to_h", "to_w", "to_c", "group", "pad_h", "pad_w", "turned", "relu", "block", "threads",
        )
    )  # fmt: skip


def recipes(native: Native, op: Op) -> list[Recipe]:
    """One for each pass of a convolution of either size at stride 1, undilated, padded by less than it; else none."""
    a = op.attrs
    size = SIZES.get(a.kernel)
    if size is None or (a.stride, a.dilation) != ((1, 1), (1, 1)) or max(a.pad) >= size.filter:
        return []
    if op.kind == "convolution.backward_filter":
        return [_gradient(native, size, _geometry(native, op.reads[0].shape, op.reads[1].shape, a.pad, a.group))]
    if op.kind == "convolution.backward_data":
        opposite = [size.filter - 1 - p for p in a.pad]
        geometry = _geometry(native, op.reads[1].shape, op.writes[0].shape, opposite, a.group)
        geometry.turned = True
    else:
        geometry = _geometry(native, op.reads[0].shape, op.writes[0].shape, a.pad, a.group)
        geometry.relu = op.kind.endswith("relu")
    return [_convolution(native, size, geometry, size.tiles(op.writes[0].shape))]


def _convolution(native: Native, size: Size, geometry: Geometry, tiles: int) -> Recipe:
    blocks = -(-tiles // BLOCK)
    blocks += -blocks % native.threads  # each has as much to do
    geometry.block = -(-tiles // blocks)
    geometry.block += geometry.block % 2  # rows go by two
    scratch = Scratch()
    piece = scratch.take(native.bytes(_named(size, "convolve_bytes"), geometry))
    run, turned = native.function(_named(size, "convolve")), geometry.turned

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        x, w = (reads[1], reads[0]) if turned else reads[:2]
        bias = address(reads[2]) if len(reads) == 3 else 0
        return [bound(run, geometry, address(x), address(w), bias, address(writes[0]), piece.address(workspace))]

    return scratch.recipe(size.name, bind)


def _gradient(native: Native, size: Size, geometry: Geometry) -> Recipe:
    held = BYTES_OF_SUMS // (POINTS * 4 * (geometry.c + geometry.to_c))
    tiles = size.tiles((geometry.n, geometry.to_c, geometry.to_h, geometry.to_w))
    geometry.block = min(max(BLOCK_OF_SUMS, held), tiles)
    scratch = Scratch()
    piece = scratch.take(native.bytes(_named(size, "gradient_bytes"), geometry))
    run = native.function(_named(size, "gradient"))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        return [bound(run, geometry, *(address(t) for t in (*reads, *writes)), piece.address(workspace))]

    return scratch.recipe(size.name, bind)


def _named(size: Size, what: str) -> str:
    return f"winograd{size.filter}x{size.filter}_{what}"


def _geometry(native: Native, source: Sequence[int], target: Sequence[int], pad: Sequence[int], group: int) -> Geometry:
    """Of logical shapes N, C, H, W; without a block."""
    n, c, h, w = source
    _, to_c, to_h, to_w = target
    return Geometry(n, h, w, c // group, to_h, to_w, to_c // group, group, *pad, False, False, 0, native.threads)


def pays(op: Op) -> bool:
    """Whether the transforms cost less than the products they save."""
    size = SIZES.get(op.attrs.kernel)
    w, result = {
        "convolution.backward_data": (op.reads[0], op.writes[0]),
        "convolution.backward_filter": (op.writes[0], op.reads[1]),
    }.get(op.kind, (op.reads[1], op.writes[0]))
    channels = min(w.shape[0] // op.attrs.group, w.shape[1])
    return size is not None and channels >= size.least and size.tiles(result.shape) >= ENOUGH
