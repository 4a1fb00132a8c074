"""How kernels that go channel by channel (kernels/columns.cuh) divide a tensor among blocks: by its shape alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from minidnn.backends.cuda.recipe import BLOCK, MOST_BLOCKS
from minidnn.backends.layout import channels_last

REDUCING = 1024  # blocks at most that sum: what the largest GPUs run at once
SPREAD = 512  # blocks at least that map, where there are so many items: to each of the largest GPUs' processors some
LEAST = 8  # items that a thread should have


@dataclass(frozen=True)
class Columns:
    """items values in each of so many channels; `inner` of them are neighbours in memory, 1 where channels are
    innermost. A thread takes `vector` channels, a block `across` times as many."""

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
        """Items of a chunk; the last has what is left."""
        return -(-self.items // self.chunks)

    @property
    def arguments(self) -> tuple[np.generic, ...]:
        """COLUMNS in columns.cuh."""
        sizes = np.int32(self.channels), np.int32(self.inner), np.int32(self.across)
        return (*sizes, np.int64(self.items), np.int64(self.per))


def reducing(shape: tuple[int, ...]) -> Columns:
    """For sums over everything but axis 1."""
    return _columns(*_sizes(shape), REDUCING, 1)


def mapping(shape: tuple[int, ...]) -> Columns:
    """For the same arithmetic on each value of a channel."""
    return _columns(*_sizes(shape), MOST_BLOCKS, SPREAD)


def partials(chunks: int, channels: int) -> Columns:
    """For the sum of chunks' sums: eight channels, a sector of memory, at a time, in one chunk."""
    across = min(8, _power_of_two(channels))
    return Columns(channels, chunks, 1, 1, across, 1)


def _sizes(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(channels, items, inner)"""
    c = shape[1]
    return c, math.prod(shape) // c, 1 if channels_last(shape) else math.prod(shape[2:])


def _columns(channels: int, items: int, inner: int, most: int, least: int) -> Columns:
    """With so many blocks at most, and at least where that leaves a thread an item."""
    vector = 4 if inner == 1 and channels % 4 == 0 else 1
    # Where a channel's values are neighbours, so are the threads that read them.
    across = min(32, _power_of_two(-(-channels // vector))) if inner == 1 else 1
    tiles = -(-channels // (vector * across))
    down = BLOCK // across  # items that a block has at a time
    chunks = max(items // (down * LEAST), min(items // down, least // tiles))
    chunks = max(1, min(chunks, most // tiles))
    chunks = -(-items // -(-items // chunks))  # none of them empty
    return Columns(channels, items, inner, vector, across, chunks)


def _power_of_two(n: int) -> int:
    """The least that is not below n."""
    return 1 << (n - 1).bit_length()
