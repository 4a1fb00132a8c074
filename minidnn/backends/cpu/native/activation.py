"""ReLU (activation.c), forward and backward. Backward takes the sign of x from x, from y or from a mask."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, plain
from minidnn.program import Op


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
    """One recipe for y dy -> dx, x y dy -> dx, or mask dy -> dx."""
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


FIRST = {"relu.forward": forward, "relu.backward": backward}
