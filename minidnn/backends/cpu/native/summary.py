"""Reduction and ArgMax (summary.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, plain
from minidnn.backends.rows import places_of_largest, rows
from minidnn.program import Op

OPERATIONS = ("SUM", "ASUM", "SUMSQ")  # in the order of the enum in C


class Geometry(Mirrored):
    twin = "summary"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("outer", "length", "inner", "threads", "operation")),
        *((name, ctypes.c_int64) for name in ("top", "value", "place", "along", "apart")),
        ("coeff", ctypes.c_double),
    )


def reduction(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> y, or (x) dy -> dx."""
    forward, a = op.kind == "reduction.forward", op.attrs
    shape = (op.reads if forward else op.writes)[0].shape
    r = rows(shape, a.axis, len(shape))
    g = Geometry(r.outer, r.length, r.inner, native.threads, OPERATIONS.index(a.operation), coeff=a.coeff)
    run = native.function("summary_sum" if forward else "summary_sum_gradient")
    absent = [] if forward or len(op.reads) == 2 else [0]

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        return [bound(run, g, *absent, *map(address, reads), address(writes[0]))]

    return [plain(bind, NAME)]


def argmax(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> y."""
    r, wanted = places_of_largest(op)
    g = Geometry(
        r.outer, r.length, r.inner, native.threads, 0, op.attrs.top_k, wanted.value, wanted.place, wanted.along,
        wanted.apart,
    )  # fmt: skip
    run = native.function("summary_largest")
    return [plain(lambda reads, writes, _: [bound(run, g, address(reads[0]), address(writes[0]))], NAME)]


FIRST = {"reduction.forward": reduction, "reduction.backward": reduction, "argmax.forward": argmax}
