"""Sums of gradients over micro-batches (sums.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, plain
from minidnn.program import Op


class Geometry(Mirrored):
    twin = "sum"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("size", "threads", "every"))


class Merge(Mirrored):
    twin = "merge"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("size", "threads", "ranks", "own"))


def accumulate(native: Native, op: Op) -> list[Recipe]:
    """One recipe for sums dw iteration -> sums."""
    g, run = Geometry(op.reads[1].size, native.threads, op.attrs.every), native.function("sums_accumulate")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        sums, dw, iteration = (address(t) for t in reads)
        return [bound(run, g, sums, dw, iteration)]

    return [plain(bind, NAME)]


def total(native: Native, op: Op) -> list[Recipe]:
    """One recipe for sums dw -> their sum."""
    g, run = Geometry(op.reads[1].size, native.threads, op.attrs.every), native.function("sums_total")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        sums, dw = (address(t) for t in reads)
        return [bound(run, g, sums, dw, address(writes[0]))]

    return [plain(bind, NAME)]


def merge(native: Native, op: Op) -> list[Recipe]:
    """One recipe for rows (dw) -> shard."""
    g, run = Merge(op.writes[0].size, native.threads, op.attrs.ranks, op.attrs.own), native.function("sums_merge")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        return [bound(run, g, address(reads[0]), address(writes[0]))]

    return [plain(bind, NAME)]


FIRST = {"gradient.accumulate": accumulate, "gradient.total": total, "gradient.merge": merge}
