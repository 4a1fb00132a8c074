"""Optimizers other than SGD (rules.c): one pass over a weight, its gradient and its history."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, plain
from minidnn.optimizers import RULES
from minidnn.program import Op

REGULARIZATIONS = {None: 0, "L1": 1, "L2": 2}
NUMBERS = {rule: number for number, rule in enumerate(RULES)}  # as rules.c has them


class Geometry(Mirrored):
    twin = "rule"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("size", "threads", "rule", "regularization", "every")),
        ("numbers", ctypes.c_double * 3),
        *((name, ctypes.c_float) for name in ("decay", "scale", "lr_mult")),
    )


def _geometry(native: Native, op: Op) -> Geometry:
    rule, attrs = op.family, op.attrs
    own = (*attrs.numbers, 0.0, 0.0)[:3]
    within = attrs.decay and rule != "adamw"
    return Geometry(
        op.reads[0].size, native.threads, NUMBERS[rule], REGULARIZATIONS[attrs.regularization if within else None],
        attrs.every, (ctypes.c_double * 3)(*own), attrs.decay, attrs.scale, attrs.lr_mult,
    )  # fmt: skip


def update(native: Native, op: Op) -> list[Recipe]:
    """One recipe for w dw rate objective h (v) (iteration or ratio) (clip) -> w h (v)."""
    rule, a = op.family, op.attrs
    g, run = _geometry(native, op), native.function("rule_update")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        w, dw, rate, objective, *rest = (address(t) for t in reads)
        clip = rest.pop() if a.clipped else 0
        ratio = rest.pop() if RULES[rule].adapts else 0
        iteration = rest.pop() if RULES[rule].counts else 0
        h, v = (*rest, 0)[:2]
        return [bound(run, g, w, dw, h, v, rate, objective, iteration, ratio, clip)]

    return [plain(bind, NAME)]


def lamb_moments(native: Native, op: Op) -> list[Recipe]:
    """One recipe for w dw objective m v iteration (clip) -> m v (sums)."""
    g, run = _geometry(native, op), native.function("rule_lamb_moments")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        w, dw, objective, m, v, iteration, clip = (*(address(t) for t in reads), 0)[:7]
        sums = address(writes[2]) if len(writes) > 2 else 0
        return [bound(run, g, w, dw, m, v, objective, iteration, clip, sums)]

    return [plain(bind, NAME)]


def lamb_update(native: Native, op: Op) -> list[Recipe]:
    """One recipe for w rate m v iteration ratio -> w."""
    g, run = _geometry(native, op), native.function("rule_lamb_update")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        return [bound(run, g, *(address(t) for t in reads))]

    return [plain(bind, NAME)]


FIRST = {
    **{f"{rule}.update": update for rule in RULES},
    "lamb.moments": lamb_moments,
    "lamb.update": lamb_update,
}
