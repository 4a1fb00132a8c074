"""Inner products, on all threads, where NumPy's BLAS would run on one: products of matmul.c, and those of
inner_product.c for gradients of a few samples.

The rows of x and W, `inputs` elements each, have their elements in the same order (`product_sizes` of
backends/cpu/layout.py checks this); y is N x outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address, product_sizes
from minidnn.backends.cpu.native import matmul
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.native.matmul import PANEL
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.program import Op

FEW = 12  # up to so many rows of A, packing B does not pay
# Rows and columns of a block of B. Without packing (LYING) each row is a stream from memory, so rows are few and long.
# A packed block fits the second-level cache.
LYING, PACKED = (8, 4096), (128, 1024)
HIGH = 1024  # rows of a block of A


class Matrices(Mirrored):
    twin = "matrices"

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("rows", "depth", "columns", "down", "along", "deep", "wide", "high", "packed", "threads")
    )


def forward(native: Native, op: Op) -> list[Recipe]:
    """The recipes for x w (b) -> y: y (n x outputs) = x (n x inputs) W' (inputs x outputs)."""
    if (sizes := product_sizes(*op.reads[:2])) is None:
        return []
    n, outputs, inputs = sizes
    relu = op.kind.endswith("relu")
    return matmul.products(native, op, matmul.geometry(native, n, inputs, outputs, turned_b=True, relu=relu))


def backward_data(native: Native, op: Op) -> list[Recipe]:
    """The recipes for w dy -> dx: dx (n x inputs) = dy (n x outputs) W (outputs x inputs)."""
    (w, _), (dx,) = op.reads, op.writes
    if (sizes := product_sizes(dx, w)) is None:
        return []
    n, outputs, inputs = sizes
    if n <= FEW:
        return [_thin(native, n, outputs, inputs, down=outputs, along=1)]
    return matmul.products(native, op, matmul.geometry(native, n, outputs, inputs), swapped=True)


def backward_filter(native: Native, op: Op) -> list[Recipe]:
    """The recipes for x dy -> dw: dW (outputs x inputs) = dy' (outputs x n) x (n x inputs)."""
    (x, _), (dw,) = op.reads, op.writes
    if (sizes := product_sizes(x, dw)) is None:
        return []
    n, outputs, inputs = sizes
    return turned_products(native, op, outputs, n, inputs)


def turned_products(native: Native, op: Op, rows: int, depth: int, columns: int, name: str = NAME) -> list[Recipe]:
    """The recipes for C = A B, of an op that reads B and A, in this order, and writes C. A lies as depth x rows."""
    if (of_small := matmul.small(native, rows, depth, columns)) is not None:
        return [matmul.small_product(native, of_small, name)]
    g = matmul.geometry(native, rows, depth, columns, turned_a=True)
    if depth > PACKED[0]:
        return matmul.products(native, op, g, swapped=True, name=name)
    thin = _thin(native, rows, depth, columns, down=1, along=rows, name=name)
    return [thin] if rows <= FEW else [thin, *matmul.lean(native, op, g, swapped=True, name=name)]


def _thin(native: Native, rows: int, depth: int, columns: int, down: int, along: int, name: str = NAME) -> Recipe:
    """The recipe for C = A B, of an op that reads B and A, in this order, and writes C.

    A is rows x depth, with strides of `down` and `along` elements; B is depth x columns, row after row."""
    packed = rows > FEW
    deep, wide = PACKED if packed else LYING
    # All threads get equally many blocks: pieces of the columns, or of the rows if these are more.
    across, high = -(-columns // wide), -(-rows // HIGH) if packed else 1
    if packed and rows > columns:
        high += -high % native.threads
    else:
        across += -across % native.threads
    wide = -(-columns // across // PANEL) * PANEL
    high = -(-rows // high)
    geometry = Matrices(rows, depth, columns, down, along, min(deep, depth), wide, high, packed, native.threads)
    run, scratch = native.function("inner_product_multiply"), Scratch()
    piece = scratch.take(native.bytes("inner_product_multiply_bytes", geometry))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        b, a = reads
        return [bound(run, geometry, address(a), address(b), address(writes[0]), piece.address(workspace))]

    return scratch.recipe(name, bind)


FIRST = {
    "inner_product.forward": forward,
    "inner_product.forward_relu": forward,
    "inner_product.backward_data": backward_data,
    "inner_product.backward_filter": backward_filter,
}
