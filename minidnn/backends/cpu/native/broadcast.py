"""A factor or a constant that spans some axes, and sums over the others (broadcast.c)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from minidnn.backends.broadcast import DIMS, filled, parts, spanned
from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch, plain
from minidnn.program import Op, Tensor

SEVERAL = 1 << 10  # sums that threads share; fewer are cut into pieces
PIECES = 64  # most pieces of a sum
LEAST = 1 << 15  # least elements of a piece, of all sums together, if there are several
PLACES = 64  # least places of a piece of one sum


class Geometry(Mirrored):
    twin = "broadcast"

    _fields_ = (
        *((name, ctypes.c_int64 * DIMS) for name in ("size", "step")),
        *((name, ctypes.c_int64) for name in ("pieces", "threads")),
    )


def _geometry(native: Native, x: Tensor, over: Tensor, axis: int) -> Geometry:
    sizes, steps = spanned(x.shape, over.shape, axis)
    summed = math.prod(n for n, _ in parts(sizes, steps)[1])
    pieces = 1 if over.size >= SEVERAL else max(1, min(PIECES, x.size // LEAST, summed // PLACES))
    numbers = (ctypes.c_int64 * DIMS)(*filled(sizes, 1)), (ctypes.c_int64 * DIMS)(*filled(steps, 0))
    return Geometry(*numbers, pieces, native.threads)


def affine(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x f (b) -> y = x f (+ b), or for x b -> y = x + b."""
    x, *smaller = op.reads
    return product(native, x, smaller[0], op.attrs.axis, 1 if op.kind == "broadcast.multiply" else None)


def total(native: Native, op: Op) -> list[Recipe]:
    """One recipe for dy -> db, a sum, or for x dy -> df, a sum of products."""
    return sums(native, op.reads[-1], op.writes[0], op.attrs.axis)


def product(native: Native, x: Tensor, f: Tensor, axis: int, factor: int | None = 1) -> list[Recipe]:
    """One recipe for y = x f (+ b): f and b span the axes of x from `axis` on. `factor`: which of the op's reads f is;
    the other of the first two is x. None: there is none, y = x + b."""
    g, run = _geometry(native, x, f, axis), native.function("broadcast_affine")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        given = [*map(address, reads)]
        f = 0 if factor is None else given.pop(factor)
        x, b = (*given, 0)[:2]
        return [bound(run, g, x, f, b, address(writes[0]))]

    return [plain(bind, NAME)]


def sums(native: Native, dy: Tensor, over: Tensor, axis: int) -> list[Recipe]:
    """One recipe for (x) dy -> sums of dy, or of x dy, over the axes that `over`, from `axis` on, does not span."""
    g, run = _geometry(native, dy, over, axis), native.function("broadcast_sum")
    scratch = Scratch()
    piece = scratch.take(native.bytes("broadcast_sum_bytes", g))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        *x, dy = map(address, reads)
        return [bound(run, g, *(x or [0]), dy, address(writes[0]), piece.address(workspace))]

    return [scratch.recipe(NAME, bind)]


FIRST = {
    "broadcast.multiply": affine,
    "broadcast.add": affine,
    "broadcast.sum": total,
    "broadcast.sum_products": total,
}
