"""Sums by channel (kernels/reduction.cu), for bias.py, normalization.py and activation.py. They take two stages
in one launch, with the sums of chunks in the workspace between them, or one stage if there is only one chunk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidnn.backends.cuda.columns import reducing
from minidnn.backends.cuda.recipe import Launch, Read, Recipe, Scratch, Write
from minidnn.program import Op


def sums_by_channel(
    op: Op, kernel: str, shape: tuple[int, ...], maps: Sequence[Read | Write], more: Sequence[np.generic] = ()
) -> list[Recipe]:
    """One recipe for the op's last write (C,), which becomes sums over all axes but the channels of values of this
    shape (N, C, ...). `maps`: the tensors that the kernel reads or writes. `more`: its arguments behind them."""
    g, out = reducing(shape), Write(len(op.writes) - 1)
    stored = "_float" if op.writes[-1].dtype == "float32" else ""  # as float, or as the maps are
    scratch = Scratch()
    partial = scratch.take(g.chunks * g.channels * 4 if g.chunks > 1 else 0)
    launch = Launch("reduction", f"{kernel}{stored}_{g.vector}", (*maps, *more, partial, out, *g.arguments), g.grid)
    return [scratch.recipe("default", launch)]
