"""Im2col, BatchReindex and RelativePositionBias (gather.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, plain
from minidnn.program import Op


class Windows(Mirrored):
    twin = "gather_windows"

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("n", "c", "h", "w", "oh", "ow", "kh", "kw", "sh", "sw", "ph", "pw", "dh", "dw", "threads")
    )


class Rows(Mirrored):
    twin = "gather_rows"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("rows", "chosen", "width", "threads"))


class Relative(Mirrored):
    twin = "gather_relative"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("side", "heads", "down", "across", "shift", "threads")),
        ("hidden", ctypes.c_float),
    )


def windows(native: Native, op: Op) -> list[Recipe]:
    """One recipe for the image x -> the columns y, or for dy -> dx."""
    forward, a = op.kind.endswith(".forward"), op.attrs
    x, y = (op.reads[0], op.writes[0]) if forward else (op.writes[0], op.reads[0])
    g = Windows(*x.shape, *y.shape[2:], *a.kernel, *a.stride, *a.pad, *a.dilation, native.threads)
    run = native.function("gather_columns" if forward else "gather_pixels")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        return [bound(run, g, address(reads[0]), address(writes[0]))]

    return [plain(bind, NAME)]


def rows(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x index -> y, or for index dy -> dx. The call raises ValueError for a number of no row."""
    forward = op.kind.endswith(".forward")
    whole, index = (op.reads[0], op.reads[1]) if forward else (op.writes[0], op.reads[0])
    g = Rows(whole.shape[0], index.size, whole.size // whole.shape[0], native.threads)
    run = native.function("gather_rows" if forward else "gather_sums")
    run.restype = ctypes.c_int64  # type: ignore[attr-defined]

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        numbers, step = flat(reads[1 if forward else 0]), bound(run, g, *(address(t) for t in (*reads, *writes)))

        def call() -> None:
            wrong = step()
            if wrong < 0:
                k = -1 - wrong
                raise ValueError(f"number {numbers[k]} (at place {k}) names none of the {g.rows} rows")

        return [call]

    return [plain(bind, NAME)]


def relative_bias(native: Native, op: Op) -> list[Recipe]:
    """One recipe for w -> y, or for dy -> dw."""
    a = op.attrs
    g = Relative(a.side, a.heads, a.down, a.across, a.shift, native.threads, a.hidden)
    run = native.function("gather_relative_sums" if op.kind.endswith(".backward") else "gather_relative")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        return [bound(run, g, address(reads[0]), address(writes[0]))]

    return [plain(bind, NAME)]


FIRST = {
    "im2col.forward": windows,
    "im2col.backward": windows,
    "batch_reindex.forward": rows,
    "batch_reindex.backward": rows,
    "relative_bias.forward": relative_bias,
    "relative_bias.backward": relative_bias,
}
