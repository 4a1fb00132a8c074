"""A factor or a constant that spans some axes, and sums over the others (kernels/broadcast.cu)."""

from __future__ import annotations

import math

import numpy as np

from minidnn.backends.broadcast import filled, parts, spanned
from minidnn.backends.cuda.recipe import (
    BLOCK,
    MOST_BLOCKS,
    Argument,
    Launch,
    Read,
    Recipe,
    Table,
    Write,
    int32,
    over,
    plain,
)
from minidnn.program import Op, Tensor

ACROSS = 32  # most elements of a block, whose values are then neighbours in memory


def _dims(sizes: tuple[int, ...], steps: tuple[int, ...], others: tuple[int, ...]) -> Table:
    """The struct Dims of the kernels."""
    rows = (filled(sizes, 1), filled(steps, 0), filled(others, 0))
    return Table(len(rows[0]), tuple(tuple(np.int64(n) for n in row) for row in rows))


def _stored(t: Tensor) -> str:
    """The end of a kernel's name, for the smaller tensor."""
    return "_float" if t.dtype == "float32" else ""


def affine(op: Op) -> list[Recipe]:
    """One recipe for x f (b) -> y = x f (+ b), or for x b -> y = x + b. f and b may be float32 in every format; b must
    be, next to f."""
    x, smaller = op.reads[:2]
    name = f"{op.kind.split('.')[1]}{'_add' if len(op.reads) == 3 else ''}{_stored(smaller)}"
    sizes, steps = spanned(x.shape, smaller.shape, op.attrs.axis)
    arguments: list[Argument] = [*(Read(i) for i in range(len(op.reads))), Write(0), np.int64(x.size)]
    return [plain(Launch("broadcast", name, (*arguments, _dims(sizes, steps, ())), over(x.size)))]


def total(op: Op) -> list[Recipe]:
    """One recipe for dy -> db, a sum, or for x dy -> df, a sum of products."""
    dy, out = op.reads[-1], op.writes[0]
    kept, summed = parts(*spanned(dy.shape, out.shape, op.attrs.axis))
    count, items = out.size, math.prod(n for n, _ in summed)
    neighbours = kept[-1][0] if kept and kept[-1][1] == 1 else 1
    across = min(ACROSS, 1 << (neighbours - 1).bit_length())
    arguments: list[Argument] = [*(Read(i) for i in range(len(op.reads))), Write(0), np.int64(count), np.int64(items)]
    tables = (
        _dims(tuple(n for n, _, _ in kept), tuple(s for _, s, _ in kept), tuple(s for _, _, s in kept)),
        _dims(tuple(n for n, _ in summed), tuple(s for _, s in summed), ()),
    )
    grid = min(-(-count // across), MOST_BLOCKS)
    name = f"{op.kind.split('.')[1]}{_stored(out)}"
    return [plain(Launch("broadcast", name, (*arguments, int32(across), *tables), grid, BLOCK))]


KINDS = {
    "broadcast.multiply": affine,
    "broadcast.add": affine,
    "broadcast.sum": total,
    "broadcast.sum_products": total,
}
