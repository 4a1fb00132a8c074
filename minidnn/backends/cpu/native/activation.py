"""Functions of single elements (activation.c): ReLU, those of functions.h, and PReLU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch, plain
from minidnn.backends.layout import channels_last
from minidnn.program import Op, Tensor

NUMBERS = 3  # most numbers of a function


class Geometry(Mirrored):
    twin = "activation"

    _fields_ = (("size", ctypes.c_int64), ("threads", ctypes.c_int64), ("slope", ctypes.c_float))


def forward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> y (mask)."""
    g = Geometry(op.reads[0].size, native.threads, op.attrs.negative_slope)
    run = native.function("relu_forward")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        x, y, mask = (*(address(t) for t in (*reads, *writes)), 0)[:3]
        return [bound(run, g, x, y, mask)]

    return [plain(bind, NAME)]


def backward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for y dy -> dx, x y dy -> dx, or mask dy -> dx. The sign of x is that of x, of y, or the mask."""
    g = Geometry(op.writes[0].size, native.threads, op.attrs.negative_slope)
    run = native.function("relu_backward")
    by_mask = op.attrs.saved == "mask"

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        saved, dy, dx = address(reads[0]), address(reads[-1]), address(writes[0])
        return [bound(run, g, *((0, saved) if by_mask else (saved, 0)), dy, dx)]

    return [plain(bind, NAME)]


def behind(native: Native, recipe: Recipe, size: int) -> Recipe:
    """The recipe, followed by a ReLU in place on the `size` elements of its output."""
    g = Geometry(size, native.threads, 0)
    run = native.function("relu_forward")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        y = address(writes[0])
        return [*recipe.bind(reads, writes, workspace), bound(run, g, y, y, 0)]

    return Recipe(recipe.algorithm, bind)


class Function(Mirrored):
    twin = "activation_function"

    _fields_ = (("size", ctypes.c_int64), ("threads", ctypes.c_int64), ("numbers", ctypes.c_double * NUMBERS))


def function(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> y, or for (saved) dy -> dx, where `saved` is x or y."""
    verb = op.kind.removeprefix("unary.")
    g = Function(op.writes[0].size, native.threads, (ctypes.c_double * NUMBERS)(*op.attrs.numbers))
    run = native.function(f"{op.attrs.function}_{verb}")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        given = [address(t) for t in ((reads[0], reads[-1]) if verb == "backward" else reads)]
        return [bound(run, g, *given, address(writes[0]))]

    return [plain(bind, NAME)]


class PReLU(Mirrored):
    twin = "activation_prelu"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("rows", "c", "shared", "threads"))


def _prelu(native: Native, x: Tensor, slope: Tensor) -> PReLU | None:
    """None if channels are not innermost, and have slopes of their own."""
    shared = slope.size == 1
    if not (shared or channels_last(x.shape)):
        return None
    return PReLU(x.size // x.shape[1], x.shape[1], shared, native.threads)


def prelu(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x slope -> y, or for x slope dy -> dx; none if channels are not innermost."""
    g = _prelu(native, *op.reads[:2])
    if g is None:
        return []
    run = native.function("prelu")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        x, slope, *dy = map(address, reads)
        return [bound(run, g, x, *(dy or [x]), slope, address(writes[0]))]

    return [plain(bind, NAME)]


def prelu_backward_filter(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x dy -> dslope; none if channels are not innermost."""
    g = _prelu(native, op.reads[0], op.writes[0])
    if g is None:
        return []
    run, scratch = native.function("prelu_backward_filter"), Scratch()
    sums = scratch.take(native.bytes("prelu_bytes", g))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        return [bound(run, g, *map(address, (*reads, *writes)), sums.address(workspace))]

    return [scratch.recipe(NAME, bind)]


FIRST = {
    "relu.forward": forward,
    "relu.backward": backward,
    "unary.forward": function,
    "unary.backward": function,
    "prelu.forward": prelu,
    "prelu.backward_data": prelu,
    "prelu.backward_filter": prelu_backward_filter,
}
