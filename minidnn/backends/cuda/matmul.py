"""Products of pairs of matrices (kernels/matmul.cu), in float32 without tensor cores."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cuda.recipe import MOST_BLOCKS, Launch, Pointer, Read, Recipe, Write, plain
from minidnn.layers.matmul import MatMulAttrs
from minidnn.program import Op

TILE = 64  # side of a tile of y


def forward(op: Op) -> list[Recipe]:
    """One recipe for a b (bias) -> y."""
    return [plain(multiply(op.attrs, Read(0), Read(1), Write(0), Read(2) if len(op.reads) == 3 else None))]


def multiply(
    a: MatMulAttrs,
    left: Pointer,
    right: Pointer,
    to: Pointer,
    bias: Pointer | None = None,
    adds: bool = False,
    kernel: str = "matmul",
) -> Launch:
    """The launch of the products; adds: to what `to` is. The kernel "matmul_to_float" leaves them unrounded."""
    tiles = a.batch * -(-a.rows // TILE) * -(-a.columns // TILE)
    sizes = np.int64(a.batch), *(np.int32(n) for n in (a.rows, a.depth, a.columns))
    flags = a.transpose_a, a.transpose_b, bias is not None, adds
    how = *(np.int32(flag) for flag in flags), np.float32(a.scale)
    ends = left, right, right if bias is None else bias, to
    return Launch("matmul", kernel, (*ends, *sizes, *how), min(tiles, MOST_BLOCKS))


KINDS = {"matmul.forward": forward}
