"""Losses of elements with targets or labels, and of pairs of vectors (distance.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.native.loss import checked
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.program import Op

FUNCTIONS = ("SIGMOID_CROSS_ENTROPY", "SQUARE", "SMOOTH_L1", "HINGE_L1", "HINGE_L2", "LOGISTIC")  # as in distance.c
PIECE = 1 << 12  # elements whose losses are added up first


class Pointwise(Mirrored):
    twin = "distance_pointwise"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("size", "piece", "threads", "ignores", "ignored", "divisor", "function")),
        *((name, ctypes.c_double) for name in ("weight", "sigma")),
    )


class Pairs(Mirrored):
    twin = "distance_pairs"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "width", "threads", "legacy")),
        *((name, ctypes.c_double) for name in ("margin", "weight")),
    )


def pointwise(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x t (inside outside) -> loss or -> (dx) (dt). In the place of t there may be labels; then the call
    raises ValueError for one that names no class."""
    a, x, labelled, forward = op.attrs, op.reads[0], op.reads[1].dtype == "int32", op.kind.endswith(".forward")
    g = Pointwise(x.size, x.size // x.shape[0] if labelled else PIECE, native.threads)
    g.ignores, g.ignored = a.ignore_label is not None, a.ignore_label or 0
    g.divisor = {"FULL": x.size, "VALID": 0, "BATCH_SIZE": x.shape[0], "NONE": 1}[a.normalization]
    g.function, g.weight, g.sigma = FUNCTIONS.index(a.function), a.loss_weight, a.sigma
    run = native.function("distance_value" if forward else "distance_slope")
    scratch = Scratch()
    sums = scratch.take(native.bytes("distance_bytes", g) if forward else 0)

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        first, target, *weights = map(address, reads)
        places = (0, target) if labelled else (target, 0)
        arguments = [first, *places, *weights, *[0] * (2 - len(weights))]
        ends = [sums.address(workspace), address(writes[0])] if forward else gradients(a.into, writes)
        return [checked(run, g, arguments + ends, flat(reads[1]), g.piece)]

    return [scratch.recipe(NAME, bind)]


def pairs(native: Native, op: Op) -> list[Recipe]:
    """One recipe for a b similar -> loss or -> (da) (db)."""
    a, x, forward = op.attrs, op.reads[0], op.kind.endswith(".forward")
    g = Pairs(x.shape[0], x.size // x.shape[0], native.threads, a.legacy, a.margin, a.loss_weight)
    run = native.function("distance_pairs_value" if forward else "distance_pairs_slope")
    scratch = Scratch()
    terms = scratch.take(native.bytes("distance_pairs_bytes", g) if forward else 0)

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        ends = [terms.address(workspace), address(writes[0])] if forward else gradients(a.into, writes)
        return [bound(run, g, *map(address, reads), *ends)]

    return [scratch.recipe(NAME, bind)]


def gradients(into: Sequence[int], writes: Sequence[np.ndarray]) -> list[int]:
    """The addresses of the gradients of the first two reads; 0 for one that is not wanted."""
    result = dict(zip(into, map(address, writes), strict=True))
    return [result.get(0, 0), result.get(1, 0)]


FIRST = {
    "pointwise_loss.forward": pointwise,
    "pointwise_loss.backward": pointwise,
    "contrastive_loss.forward": pairs,
    "contrastive_loss.backward": pairs,
}
