"""Crop, Permute, Tile and Roll (move.c)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, plain
from minidnn.backends.layout import order
from minidnn.backends.moves import Move, move
from minidnn.program import Op

MOST = 33  # loops, as in move.c


class Geometry(Mirrored):
    twin = "move"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("loops", "size", "start", "threads", "turned")),
        *((name, ctypes.c_int64 * MOST) for name in ("places", "step", "low", "high")),
    )


class Tiles(Mirrored):
    twin = "move_tiles"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("rows", "width", "tiles", "threads"))


class Turned(Mirrored):
    twin = "move_roll"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("rows", "width", "by", "threads"))


def moved(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> y, of float32 or int32."""
    return [by_loops(native, move(op), op.writes[0].size)]


def by_loops(native: Native, of: Move, size: int) -> Recipe:
    """The recipe that moves `size` elements."""
    g = Geometry(len(of.loops), size, of.start, native.threads, of.turned or 0)
    for i, loop in enumerate(of.loops):
        g.places[i], g.step[i], g.low[i], g.high[i] = loop.size, loop.step, loop.low, loop.high
    run = native.function("move_rows" if of.turned is None else "move_turned")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        return [bound(run, g, address(reads[0]), address(writes[0]))]

    return plain(bind, NAME)


def tile_backward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for dy -> dx. A tile of a row is a run of memory: the axis with all axes inside it."""
    (dx,), axes = op.writes, order(len(op.writes[0].shape))
    width = math.prod(dx.shape[i] for i in axes[axes.index(op.attrs.axis) :])
    g = Tiles(dx.size // width, width, op.attrs.tiles, native.threads)
    run = native.function("move_tiles")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        return [bound(run, g, address(reads[0]), address(writes[0]))]

    return [plain(bind, NAME)]


def roll(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> y, of float32 or int32. The axis with all axes inside it is a run of memory."""
    (x,), axes, a = op.reads, order(len(op.reads[0].shape)), op.attrs
    width = math.prod(x.shape[i] for i in axes[axes.index(a.axis) :])
    g = Turned(x.size // width, width, width // x.shape[a.axis] * a.shift, native.threads)
    run = native.function("move_roll")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        return [bound(run, g, address(reads[0]), address(writes[0]))]

    return [plain(bind, NAME)]


FIRST = {
    **dict.fromkeys(("crop.forward", "crop.backward", "permute.forward", "permute.backward", "tile.forward"), moved),
    "tile.backward": tile_backward,
    "roll.forward": roll,
}
