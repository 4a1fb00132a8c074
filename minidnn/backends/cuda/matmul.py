"""Products of pairs of matrices (kernels/matmul.cu), in float32 without tensor cores."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cuda.recipe import MOST_BLOCKS, Launch, Read, Recipe, Write, plain
from minidnn.program import Op

TILE = 64  # side of a tile of y


def forward(op: Op) -> list[Recipe]:
    """One recipe for a b (bias) -> y."""
    a, biased = op.attrs, len(op.reads) == 3
    tiles = a.batch * -(-a.rows // TILE) * -(-a.columns // TILE)
    sizes = np.int64(a.batch), *(np.int32(n) for n in (a.rows, a.depth, a.columns))
    how = *(np.int32(flag) for flag in (a.transpose_a, a.transpose_b, biased)), np.float32(a.scale)
    ends = Read(0), Read(1), Read(2 if biased else 1), Write(0)
    return [plain(Launch("matmul", "matmul", (*ends, *sizes, *how), min(tiles, MOST_BLOCKS)))]


KINDS = {"matmul.forward": forward}
