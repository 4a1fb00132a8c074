"""Sums by channel (kernels/reduction.cu), for bias.py, normalization.py and activation.py. They take two stages
in one launch, with the sums of chunks in the workspace between them, or one stage if there is only one chunk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidnn.backends.cuda.columns import reducing
from minidnn.backends.cuda.recipe import Argument, Launch, Pointer, Read, Recipe, Scratch, Write
from minidnn.program import Op


def sums_by_channel(
    op: Op, kernel: str, shape: tuple[int, ...], maps: Sequence[Read | Write], more: Sequence[np.generic] = ()
) -> list[Recipe]:
    """One recipe for the op's last write (C,), which becomes sums over all axes but the channels of values of this
    shape (N, C, ...). `maps`: the tensors that the kernel reads or writes. `more`: its arguments behind them."""
    stored = "_float" if op.writes[-1].dtype == "float32" else ""  # as float, or as the maps are
    scratch, out = Scratch(), Write(len(op.writes) - 1)
    return [scratch.recipe("default", _sums(scratch, kernel + stored, shape, (*maps, *more), out))]


def sum_of_rows(scratch: Scratch, rows: int, channels: int, given: Pointer, to: Pointer) -> Launch:
    """The launch that sums the rows of a matrix (rows, channels)."""
    return _sums(scratch, "sum", (rows, channels), (given,), to)


def _sums(scratch: Scratch, kernel: str, shape: tuple[int, ...], given: tuple[Argument, ...], to: Pointer) -> Launch:
    g = reducing(shape)
    partial = scratch.take(g.chunks * g.channels * 4 if g.chunks > 1 else 0)
    return Launch("reduction", f"{kernel}_{g.vector}", (*given, partial, to, *g.arguments), g.grid)
