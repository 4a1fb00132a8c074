"""Sums of squares by blocks (optimizers/squares.py), in float64."""

from __future__ import annotations

import numpy as np

from minidnn.ranks import shards


def squares(*tensors):
    """The sum of the squares of each block of these tensors."""
    return np.concatenate([by_block(x) for x in tensors])


def by_block(x):
    """The sum of the squares of each block, in the order in which the elements lie."""
    blocks = np.zeros((shards.blocks(x.size), shards.BLOCK))
    blocks.reshape(-1)[: x.size] = x.ravel(order="K")
    return np.square(blocks, out=blocks).sum(axis=1)


def totals(blocks, sums):
    """The sum of each tensor's squares, its blocks one after the other."""
    rows = sums.reshape(blocks.ranks, -1)
    ends = np.cumsum(blocks.counts)
    return [float(np.add.accumulate(part.reshape(-1))[-1]) for part in np.split(rows, ends[:-1], axis=1)]
