"""How kernels that work channel by channel (kernels/columns.cuh) divide a tensor among blocks: by its shape alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from minidnn.backends.cuda.recipe import BLOCK, MOST_BLOCKS, int32
from minidnn.backends.layout import channels_last

REDUCING = 1024  # most blocks of a sum: as many as the largest GPUs run at once
SPREAD = 512  # least blocks of a map, if there are enough items: some for each processor of the largest GPUs
LEAST = 8  # items that a thread should have


@dataclass(frozen=True)
class Columns:
    """The division of a tensor of `channels` channels with `items` values each.

    `inner` values of a channel are neighbours in memory: 1 if channels are innermost. A thread takes `vector` channels,
    a block `across` times as many. The items are cut into `chunks`, one for each block of a tile of channels."""

    channels: int
    items: int
    inner: int
    vector: int
    across: int
    chunks: int

    @property
    def tiles(self) -> int:
        return -(-self.channels // (self.vector * self.across))

    @property
    def grid(self) -> int:
        return self.tiles * self.chunks

    @property
    def per(self) -> int:
        """Items of a chunk; the last chunk may have fewer."""
        return -(-self.items // self.chunks)

    @property
    def arguments(self) -> tuple[np.generic, ...]:
        """The parameters COLUMNS of kernels/columns.cuh."""
        sizes = int32(self.channels), int32(self.inner), int32(self.across)
        return (*sizes, np.int64(self.items), np.int64(self.per))


def reducing(shape: tuple[int, ...], widest: int = 4) -> Columns:
    """The division for sums over all axes but axis 1. widest: the most channels of a thread"""
    return _columns(*_sizes(shape), REDUCING, 1, widest)


def mapping(shape: tuple[int, ...], widest: int = 4) -> Columns:
    """The division for the same arithmetic on each value of a channel. widest: the most channels of a thread"""
    return _columns(*_sizes(shape), MOST_BLOCKS, SPREAD, widest)


def partials(chunks: int, channels: int) -> Columns:
    """The division for the sum of chunks' sums: one chunk, with eight channels, a sector of memory, at a time."""
    across = min(8, power_of_two(channels))
    return Columns(channels, chunks, 1, 1, across, 1)


def merging(chunks: int, channels: int) -> Columns:
    """The division for the moments of chunks: one chunk, in which a thread has four items, or few more. That takes more
    blocks than `partials`, since each item costs more."""
    down = min(BLOCK, max(32, power_of_two(-(-chunks // 4))))
    across = min(BLOCK // down, power_of_two(channels))
    return Columns(channels, chunks, 1, 1, across, 1)


def _sizes(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(channels, items, inner)"""
    c = shape[1]
    return c, math.prod(shape) // c, 1 if channels_last(shape) else math.prod(shape[2:])


def _columns(channels: int, items: int, inner: int, most: int, least: int, widest: int) -> Columns:
    """The division into at most `most` blocks, and at least `least` if each thread then still has an item."""
    vectors = (v for v in (8, 4, 1) if v <= widest and channels % v == 0)
    vector = next(vectors) if inner == 1 else 1
    # If a channel's values are neighbours in memory, neighbouring threads read them, and `across` is 1.
    across = min(32, power_of_two(-(-channels // vector))) if inner == 1 else 1
    tiles = -(-channels // (vector * across))
    down = BLOCK // across  # items that a block takes at a time
    chunks = max(items // (down * LEAST), min(items // down, least // tiles))
    chunks = max(1, min(chunks, most // tiles))
    chunks = -(-items // -(-items // chunks))  # none of them empty
    return Columns(channels, items, inner, vector, across, chunks)


def power_of_two(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << (n - 1).bit_length()
