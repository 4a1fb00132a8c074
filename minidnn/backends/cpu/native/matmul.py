"""Products of pairs of matrices (matmul.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.program import Op

PANEL = 64  # columns: two panels of product.h with AVX-512, more on other CPUs
WIDE = 1024  # columns of a block
# Rows of B that are packed at a time: as many as the second-level cache holds, or few, which take less workspace.
DEEPEST, SHALLOW = 256, 32
# A C of at most SMALL elements is summed in up to PIECES pieces of at least PIECE rows of B, which threads share.
SMALL, PIECE, PIECES = 8192, 512, 16
LEAN = "_lean"  # ends the name of an algorithm that packs SHALLOW rows


class Windows(ctypes.Structure):
    """The windows of images, rows of a matrix (windows.h)."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "h", "w", "c", "to_h", "to_w",
            "kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w",
        )
    )  # fmt: skip


class Geometry(Mirrored):
    twin = "matmul"

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in (
                "batch", "rows", "depth", "columns", "turned_a", "turned_b", "relu", "accumulate", "high", "wide",
                "deepest", "pieces", "threads",
            )
        ),
        ("scale", ctypes.c_double),
        ("windows", Windows),
    )  # fmt: skip


def geometry(
    native: Native, rows: int, depth: int, columns: int, *, turned_a: bool = False, turned_b: bool = False,
    relu: bool = False, accumulate: bool = False, batch: int = 1, scale: float = 1.0, windows: Windows | None = None,
) -> Geometry:  # fmt: skip
    """The geometry of C = A B, or of C += A B, of A with rows x depth elements and B with depth x columns, which are
    `windows` of images or, without these, a matrix.

    All threads get equally many blocks of C: pieces of the columns, or of the rows if these are more."""
    across, down = -(-columns // WIDE), 1
    if batch % native.threads:
        if rows > columns:
            down = native.threads
        else:
            across += -across % native.threads
    high, wide = -(-rows // down), -(-columns // across // PANEL) * PANEL
    return Geometry(
        batch, rows, depth, columns, turned_a, turned_b, relu, accumulate, high, wide, DEEPEST, 0, native.threads,
        scale, windows or Windows(),
    )  # fmt: skip


def small(native: Native, rows: int, depth: int, columns: int) -> Geometry | None:
    """The geometry of C = A B for a small C of deep matrices, where A lies as depth x rows; None if it is not one.

    Shapes alone decide, and not the number of threads, since C's bits depend on it."""
    pieces = min(PIECES, depth // PIECE)
    if pieces < 2 or rows * columns > SMALL:
        return None
    g = geometry(native, rows, depth, columns, turned_a=True)
    g.pieces = pieces
    return g


def product(native: Native, g: Geometry, swapped: bool = False, name: str = NAME) -> Recipe:
    """The recipe for a b (bias) -> c; swapped: of an op that reads b a."""
    run, scratch = native.function("matmul_forward"), Scratch()
    panels = scratch.take(native.bytes("matmul_bytes", g))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        left, right, *bias = map(address, reads[::-1] if swapped else reads)
        return [bound(run, g, left, right, *(bias or [0]), address(writes[0]), panels.address(workspace))]

    return scratch.recipe(name, bind)


def small_product(native: Native, g: Geometry, name: str = NAME) -> Recipe:
    """The recipe for a b -> c of a small C, of an op that reads b a."""
    run, scratch = native.function("matmul_small"), Scratch()
    sums = scratch.take(native.bytes("matmul_bytes", g))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        b, a = map(address, reads)
        return [bound(run, g, a, b, address(writes[0]), sums.address(workspace))]

    return scratch.recipe(name, bind)


def products(native: Native, op: Op, g: Geometry, swapped: bool = False, name: str = NAME) -> list[Recipe]:
    """The product, and where its workspace is large beside the op's tensors, a lean one with the same bits."""
    whole = product(native, g, swapped, name)
    return [whole, *lean(native, op, g, swapped, name)] if whole.algorithm.workspace else [whole]


def lean(native: Native, op: Op, g: Geometry, swapped: bool = False, name: str = NAME) -> list[Recipe]:
    """The product that packs few rows of B at a time; none, unless DEEPEST rows are an eighth of the op's tensors, in
    bytes. So shapes alone decide, and not the number of threads."""
    if g.depth <= SHALLOW or 8 * min(DEEPEST, g.depth) * g.columns * 4 < sum(t.nbytes for t in op.tensors):
        return []
    shallow = Geometry.from_buffer_copy(g)
    shallow.deepest = SHALLOW
    return [product(native, shallow, swapped, name + LEAN)]


def forward(native: Native, op: Op) -> list[Recipe]:
    """The recipes for a b (bias) -> y."""
    a = op.attrs
    g = geometry(
        native, a.rows, a.depth, a.columns, turned_a=a.transpose_a, turned_b=a.transpose_b, batch=a.batch, scale=a.scale
    )
    return products(native, op, g)


FIRST = {"matmul.forward": forward}
