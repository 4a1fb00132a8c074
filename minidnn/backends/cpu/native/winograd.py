"""Winograd convolution at stride 1 (winograd.h). With a workspace for transformed filters and tiles, it makes a quarter
of the multiplications of a direct 3x3 convolution, and 9 of 25 of a 5x5. It is offered before oneDNN's if it pays.

Forward and backward-data are F(4x4,3x3) and F(2x2,5x5); backward-filter is F(3x3,4x4) and F(5x5,2x2). (Lavin and Gray,
"Fast Algorithms for Convolutional Neural Networks", CVPR 2016, section 4.) All use the points 0, +-sqrt(1/2), +-sqrt(2)
and infinity. One call is the whole pass: it transforms and multiplies a block of tiles at a time. Threads share the
blocks; if there are few tiles, they share the channels of the result. In backward-filter, which sums over all tiles,
they share each block's tiles and then its products. The order of a sum does not depend on the threads, so the bits are
the same for any number of threads.

Filters are transformed in each call, which takes more of it the fewer tiles there are. Kept until backward-data, the
transformed filters would take four times the weights' bytes (3x3), and they would lie in an order that backward-data's
products do not read.
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

# Tiles of a block, which are transformed, multiplied and transformed back together. They are many enough to pay for
# reading the filters from memory, and few enough to stay in the second-level cache.
BLOCK = 48
# In backward-filter, threads wait for each other after each block, and the sums go to memory and back. So a block has
# at least 72 tiles; where channels are few, it has as many as fit into 4 MiB.
BLOCK_OF_SUMS, BYTES_OF_SUMS = 72, 4 << 20
# Up to so many tiles, threads share the channels of the result, in pieces of GROUP (winograd.h), instead of the tiles:
# the products of a piece for all tiles, and a part of its filters, fit the second-level cache. In backward-filter, up
# to so many tiles are one block, whose sums need not go to memory.
FEW, GROUP = 128, 64
TILE, POINTS = 6, 36
ENOUGH = 32  # tiles that make transforming the filters pay


@dataclass(frozen=True)
class Size:
    """Filters of `filter` x `filter`, by tiles that are `step` pixels apart. They pay from `least` channels per group
    on, on both sides: measured against oneDNN's kernels on one thread of a Zen 3."""

    name: str
    filter: int
    least: int

    @property
    def step(self) -> int:
        return TILE + 1 - self.filter

    def tiles(self, shape: Sequence[int]) -> int:
        """The number of tiles that cover images of shape (N, C, H, W)."""
        return shape[0] * -(-shape[2] // self.step) * -(-shape[3] // self.step)


THREE, FIVE = Size("winograd4", 3, 16), Size("winograd2", 5, 32)
SIZES = {(s.filter, s.filter): s for s in (THREE, FIVE)}


class Geometry(Mirrored):
    twin = "winograd"

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "n", "h", "w", "c", "to_h", "to_w", "to_c", "group", "pad_h", "pad_w", "turned", "relu", "block", "threads",
            "few",
        )
    )  # fmt: skip


def recipes(native: Native, op: Op) -> list[Recipe]:
    """One recipe for each pass of a 3x3 or 5x5 convolution at stride 1, without dilation, with less padding than the
    filter's side; none for any other."""
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
    blocks += -blocks % native.threads  # so that all threads have equally many
    geometry.few = geometry.group == 1 and tiles <= FEW and -(-geometry.to_c // GROUP) >= native.threads
    geometry.block = tiles if geometry.few else -(-tiles // blocks)
    scratch = Scratch()
    piece = scratch.take(native.bytes(_named(size, "convolve_bytes"), geometry))
    run, turned = native.function(_named(size, "convolve")), geometry.turned

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        x, w = (reads[1], reads[0]) if turned else reads[:2]
        bias = address(reads[2]) if len(reads) == 3 else 0
        return [bound(run, geometry, address(x), address(w), bias, address(writes[0]), piece.address(workspace))]

    return scratch.recipe(size.name, bind)


def _gradient(native: Native, size: Size, geometry: Geometry) -> Recipe:
    tiles = size.tiles((geometry.n, geometry.to_c, geometry.to_h, geometry.to_w))
    channels, filters = geometry.c, geometry.to_c
    held = BYTES_OF_SUMS // (POINTS * 4 * (channels + filters))
    # So many tiles, as one block, take no more workspace than smaller blocks and their sums.
    alone = min(FEW, BLOCK_OF_SUMS + channels * filters // (channels + filters))
    geometry.block = tiles if tiles <= max(alone, held) else max(BLOCK_OF_SUMS, held)
    scratch = Scratch()
    piece = scratch.take(native.bytes(_named(size, "gradient_bytes"), geometry))
    run = native.function(_named(size, "gradient"))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        return [bound(run, geometry, *(address(t) for t in (*reads, *writes)), piece.address(workspace))]

    return scratch.recipe(size.name, bind)


def _named(size: Size, what: str) -> str:
    return f"winograd{size.filter}x{size.filter}_{what}"


def _geometry(native: Native, source: Sequence[int], target: Sequence[int], pad: Sequence[int], group: int) -> Geometry:
    """The geometry for the logical shapes (N, C, H, W) of the tensor that is read by 6x6 tiles, and of the result (or
    dy). `block` is left at 0."""
    n, c, h, w = source
    _, to_c, to_h, to_w = target
    return Geometry(n, h, w, c // group, to_h, to_w, to_c // group, group, *pad, False, False, 0, native.threads, False)


def pays(op: Op) -> bool:
    """Whether the transforms cost less than the products that they save."""
    size = SIZES.get(op.attrs.kernel)
    w, result = {
        "convolution.backward_data": (op.reads[0], op.writes[0]),
        "convolution.backward_filter": (op.writes[0], op.reads[1]),
    }.get(op.kind, (op.reads[1], op.writes[0]))
    channels = min(w.shape[0] // op.attrs.group, w.shape[1])
    return size is not None and channels >= size.least and size.tiles(result.shape) >= ENOUGH
