"""Dropout (kernels/dropout.cu). The mask is a function of (seed, iteration, layer, position), so backward computes the
same one again. The iteration is read from device memory, so that a captured graph need not change.
"""

from __future__ import annotations

import numpy as np

from minidnn.backends import philox
from minidnn.backends.cuda.recipe import Argument, Launch, Read, Recipe, Write, int32, over, plain
from minidnn.program import Op


def dropout(op: Op) -> list[Recipe]:
    """One recipe for x iteration -> y, the same forward and backward."""
    x, stream = op.reads[0], _stream(op)
    ends = (Read(0), Read(1), Write(0))
    if len(x.shape) != 4 or x.shape[1] == 1 or x.shape[2] * x.shape[3] == 1:
        return [plain(Launch("dropout", "dropout_flat", (*ends, np.int64(x.size), *stream), over(-(-x.size // 4))))]
    n, c, h, w = x.shape
    numbers = (np.int64(n), int32(c), int32(h * w))
    items = n * c * (-(-h * w // 4) + 1)
    return [plain(Launch("dropout", "dropout_channels", (*ends, *numbers, *stream), over(items)))]


def factors(op: Op) -> list[Recipe]:
    """One recipe for iteration -> y, what dropout makes of ones."""
    size = op.writes[0].size
    arguments = Read(0), Write(0), np.int64(size), *_stream(op)
    return [plain(Launch("dropout", "dropout_factors", arguments, over(-(-size // 4))))]


def _stream(op: Op) -> tuple[Argument, ...]:
    """The arguments STREAM of the kernels."""
    a = op.attrs
    low, high = a.seed & 0xFFFFFFFF, a.seed >> 32 & 0xFFFFFFFF
    words = (np.uint32(v) for v in (a.key & 0xFFFFFFFF, low, high, philox.threshold(a.ratio)))
    return np.int64(a.block), *words, np.float32(1 / (1 - a.ratio))


KINDS = {"dropout.forward": dropout, "dropout.backward": dropout, "dropout.factors": factors}
