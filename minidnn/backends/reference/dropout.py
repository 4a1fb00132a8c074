"""Dropout: sets elements to 0 at random, and scales the others so that the mean stays the same."""

from __future__ import annotations

import numpy as np

from minidnn.backends.philox import keep_mask


def dropout(a, reads, writes):
    """x, iteration int64 (1,) -> y. Forward and backward are the same, because the mask is a function of seed, key,
    iteration and position (backends/philox.py)."""
    (x, iteration), (y,) = reads, writes
    keep = keep_mask(x.shape, a.ratio, a.seed, int(iteration[0]), a.key, a.block)
    y[...] = np.where(keep, x * x.dtype.type(1 / (1 - a.ratio)), 0)


def factors(a, reads, writes):
    """iteration int64 (1,) -> y: what `dropout` makes of ones."""
    dropout(a, [np.ones_like(writes[0]), *reads], writes)


KINDS = {"dropout.forward": dropout, "dropout.backward": dropout, "dropout.factors": factors}
