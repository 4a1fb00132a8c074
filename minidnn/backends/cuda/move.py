"""Crop, Permute, Tile, Roll, and other moves of elements (kernels/move.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from minidnn.backends.cuda.recipe import BLOCK, MOST_BLOCKS, Launch, Read, Recipe, Table, Write, int32, over, plain
from minidnn.backends.layout import order
from minidnn.backends.moves import Move, move
from minidnn.program import Op

MOST = 33  # loops, as in kernels/move.cu
TILE = 32  # side of a tile of a transposition
NARROW = 8  # rows or columns; below, a tile would be mostly empty


def moved(op: Op) -> list[Recipe]:
    """One recipe for x -> y."""
    return [plain(launch(move(op), op.writes[0].size))]


def launch(of: Move, size: int) -> Launch:
    """The launch that moves `size` elements."""
    turned, loops = of.turned, of.loops
    if turned is not None and min(loops[turned].size, loops[-1].size) >= NARROW:
        return _turned(of, turned, size)
    four = loops[-1].step == 1 and not any(
        n % 4 for n in (of.start, loops[-1].size, loops[-1].low, loops[-1].high, *(loop.step for loop in loops[:-1]))
    )
    by, last = 4 if four else 1, loops[-1]
    counted = [(loop.size, loop.step // by, loop.low, loop.high) for loop in loops[:-1]]
    counted.append((last.size // by, last.step, last.low // by, last.high // by))
    numbers = int32(len(loops)), np.int64(of.start // by), np.int64(size // by)
    arguments = Read(0), Write(0), _table(counted), *numbers
    return Launch("move", f"rows_{by}", arguments, over(size // by))


def _turned(of: Move, turned: int, size: int) -> Launch:
    """The launch of a transposition: squares of the loop `turned` and the innermost one."""
    sizes = [loop.size for loop in of.loops]
    pitch = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]  # in the target
    around = [(sizes[i], of.loops[i].step, pitch[i]) for i in range(len(sizes) - 1) if i != turned]
    columns, rows, images = sizes[turned], sizes[-1], math.prod(n for n, _, _ in around)
    tiles = images * -(-rows // TILE) * -(-columns // TILE)
    numbers = (np.int64(n) for n in (images, rows, columns, of.loops[-1].step, pitch[turned]))
    arguments = Read(0), Write(0), _table(around or [(1, 0, 0)]), int32(len(around)), *numbers
    return Launch("move", "turned", arguments, min(tiles, MOST_BLOCKS), BLOCK)


def _table(rows: Iterable[Iterable[int]]) -> Table:
    """The struct of the rows' columns."""
    return Table(MOST, tuple(tuple(np.int64(n) for n in column) for column in zip(*rows, strict=True)))


def tile_backward(op: Op) -> list[Recipe]:
    """One recipe for dy -> dx. A tile of a row is a run of memory: the axis with all axes inside it."""
    (dx,), axes = op.writes, order(len(op.writes[0].shape))
    width = math.prod(dx.shape[i] for i in axes[axes.index(op.attrs.axis) :])
    numbers = (np.int64(n) for n in (dx.size, width, op.attrs.tiles))
    return [plain(Launch("move", "tiles", (Read(0), Write(0), *numbers), over(dx.size)))]


def roll(op: Op) -> list[Recipe]:
    """One recipe for x -> y. The axis with all axes inside it is a run of memory."""
    (x,), axes, a = op.reads, order(len(op.reads[0].shape)), op.attrs
    width = math.prod(x.shape[i] for i in axes[axes.index(a.axis) :])
    numbers = (np.int64(n) for n in (x.size, width, width // x.shape[a.axis] * a.shift))
    return [plain(Launch("move", "roll", (Read(0), Write(0), *numbers), over(x.size)))]


KINDS = {
    **dict.fromkeys(("crop.forward", "crop.backward", "permute.forward", "permute.backward", "tile.forward"), moved),
    "tile.backward": tile_backward,
    "roll.forward": roll,
}
