"""Products of pairs of matrices: on tensor cores (kernels/tensor_matmul.cu), or in float32 (kernels/matmul.cu)."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cuda import tensor_cores
from minidnn.backends.cuda.recipe import MOST_BLOCKS, Launch, Pointer, Read, Recipe, Write, int32, plain
from minidnn.layers.matmul import MatMulAttrs
from minidnn.program import Op

TILE = 64  # side of a tile of y
SIDES = 128, 64  # of tensor_matmul.cu's tiles
STAGES, STAGE_BYTES = 3, 2 * 80  # parts of A and B that lie in shared memory at once, and a part's bytes for each row
WASTED = 1.25  # so much more area larger tiles may cover: they read each number half as often


def forward(op: Op) -> list[Recipe]:
    """One recipe for a b (bias) -> y."""
    return [plain(multiply(*_ends(op)))]


def on_tensor_cores(op: Op) -> list[Recipe]:
    """As `forward`."""
    return [plain(multiply_on_tensor_cores(*_ends(op), itemsize=op.reads[0].itemsize), name=tensor_cores.NAME)]


def _ends(op: Op) -> tuple[MatMulAttrs, Pointer, Pointer, Pointer, Pointer | None]:
    return op.attrs, Read(0), Read(1), Write(0), Read(2) if len(op.reads) == 3 else None


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
    sizes = np.int64(a.batch), *(int32(n) for n in (a.rows, a.depth, a.columns))
    flags = a.transpose_a, a.transpose_b, bias is not None, adds
    how = *(int32(flag) for flag in flags), np.float32(a.scale)
    ends = left, right, right if bias is None else bias, to
    return Launch("matmul", kernel, (*ends, *sizes, *how), _blocks(a, TILE))


def multiply_on_tensor_cores(
    a: MatMulAttrs, left: Pointer, right: Pointer, to: Pointer, bias: Pointer | None = None, adds: bool = False,
    itemsize: int = 4,
) -> Launch:  # fmt: skip
    """As `multiply`; itemsize: bytes of a number in memory."""
    side = _side(a)
    sizes = np.int64(a.batch), *(int32(n) for n in (a.rows, a.depth, a.columns))
    units = (
        tensor_cores.unit(itemsize * (a.rows if a.transpose_a else a.depth)),
        tensor_cores.unit(itemsize * (a.depth if a.transpose_b else a.columns)),
    )
    how = *(int32(n) for n in (*units, bias is not None, adds)), np.float32(a.scale)
    ends = left, right, right if bias is None else bias, to
    name = f"tensor_matmul_{side}_{a.transpose_a:d}{a.transpose_b:d}"
    shared = STAGES * STAGE_BYTES * side
    return Launch("tensor_matmul", name, (*ends, *sizes, *how), _blocks(a, side), shared=shared)


def _blocks(a: MatMulAttrs, side: int) -> int:
    return min(a.batch * -(-a.rows // side) * -(-a.columns // side), MOST_BLOCKS)


def _side(a: MatMulAttrs) -> int:
    """The larger of the tiles, unless they cover much more than y is."""

    def covered(side: int) -> int:
        return side**2 * -(-a.rows // side) * -(-a.columns // side)

    large, small = SIDES
    return large if covered(large) <= WASTED * covered(small) else small


KINDS = {"matmul.forward": forward}
ON_TENSOR_CORES = {"matmul.forward": on_tensor_cores}
