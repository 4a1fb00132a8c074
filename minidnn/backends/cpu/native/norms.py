"""Sums of squares by blocks, clipping, the loss's scale, and the ratios of LARS and LAMB (norms.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, plain
from minidnn.program import Op
from minidnn.ranks import shards


class Squares(Mirrored):
    twin = "squares"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("size", "threads"))


class Norm(Mirrored):
    twin = "norm"

    _fields_ = (*((name, ctypes.c_int64) for name in ("tensors", "ranks", "row")), ("threshold", ctypes.c_double))


class Unscale(Mirrored):
    twin = "unscale"

    _fields_ = (
        ("norm", Norm),
        ("period", ctypes.c_int64),
        *((name, ctypes.c_float) for name in ("most", "least")),
    )


class Ratio(Mirrored):
    twin = "ratio"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("blocks", "ranks")),
        ("trust", ctypes.c_double),
        *((name, ctypes.c_float) for name in ("decay", "scale")),
    )


def gradient_squares(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> the sums of their blocks' squares."""
    each = [Squares(t.size, native.threads) for t in op.reads]
    starts = [0, *accumulate(shards.blocks(t.size) for t in op.reads)]
    run = native.function("norms_squares")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        at = address(writes[0])
        return [bound(run, g, address(x), at + 8 * start) for g, x, start in zip(each, reads, starts, strict=False)]

    return [plain(bind, NAME)]


def gradient_clip(native: Native, op: Op) -> list[Recipe]:
    """One recipe for sums -> factor: the factor, at most 1, that scales the gradients' common L2 norm down to the
    threshold."""
    g, run = _norm(op), _with_counts(native, op, "norms_clip")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        return [bound(run, g, address(reads[0]), address(writes[0]))]

    return [plain(bind, NAME)]


def gradient_unscale(native: Native, op: Op) -> list[Recipe]:
    """One recipe for state objective sums -> state factor. The factor undoes the loss scale and clips."""
    a, run = op.attrs, _with_counts(native, op, "norms_unscale")
    g = Unscale(_norm(op), a.period, a.most, a.least)

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        state, objective, sums = map(address, reads)
        return [bound(run, g, sums, objective, state, *map(address, writes))]

    return [plain(bind, NAME)]


def _norm(op: Op) -> Norm:
    blocks = op.attrs.blocks
    return Norm(len(blocks.counts), blocks.ranks, sum(blocks.counts), op.attrs.threshold)


def _with_counts(native: Native, op: Op, name: str) -> Callable[..., None]:
    """The C function of that name with the number of each tensor's blocks, which the call holds."""
    counts = op.attrs.blocks.counts
    return partial(native.function(name), (ctypes.c_int64 * len(counts))(*counts))


def ratio(native: Native, op: Op) -> list[Recipe]:
    """One recipe for (sums) objective (clip) -> ratio."""
    a, blocks = op.attrs.rule, op.attrs.blocks
    each, ranks = (blocks.counts[0], blocks.ranks) if blocks else (0, 0)
    g = Ratio(each, ranks, a.numbers[1], a.decay, a.scale)
    run = native.function(f"norms_{op.family}")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        given = [address(t) for t in reads]
        sums = given.pop(0) if blocks else 0
        objective, clip = (*given, 0)[:2]
        return [bound(run, g, sums, objective, clip, address(writes[0]))]

    return [plain(bind, NAME)]


FIRST = {
    "gradient.squares": gradient_squares,
    "gradient.clip": gradient_clip,
    "gradient.unscale": gradient_unscale,
    "lars.ratio": ratio,
    "lamb.ratio": ratio,
}
