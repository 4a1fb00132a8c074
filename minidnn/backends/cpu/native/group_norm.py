"""GroupNorm and InstanceNorm (group_norm.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.backends.rows import groups
from minidnn.program import Op

LONG = 1024  # elements of a run from which on each group has a workspace of its own, which is then small beside it


class Geometry(Mirrored):
    twin = "group_norm"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("samples", "groups", "width", "rows", "places", "run", "threads")),
        ("eps", ctypes.c_double),
    )


def forward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x (gamma beta) -> y inverse mean."""
    g, run, scratch = _geometry(native, op), native.function("group_norm_forward"), Scratch()
    space = scratch.take(native.bytes("group_norm_bytes", g))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        x, *scale = map(address, reads)
        return [bound(run, g, x, *(scale or [0, 0]), *map(address, writes), space.address(workspace))]

    return [scratch.recipe(NAME, bind)]


def backward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x dy inverse mean (gamma) -> products sums (dx)."""
    g, run, scratch = _geometry(native, op), native.function("group_norm_backward"), Scratch()
    space = scratch.take(native.bytes("group_norm_bytes", g))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        given, made = [*map(address, reads)], [*map(address, writes)]
        given, made = given + [0] * (5 - len(given)), made + [0] * (3 - len(made))
        return [bound(run, g, *given, *made, space.address(workspace))]

    return [scratch.recipe(NAME, bind)]


def _geometry(native: Native, op: Op) -> Geometry:
    samples, count, width, places, run = groups(op.reads[0].shape, op.attrs.groups)
    rows = count if run >= LONG else 1  # each group as a sample
    return Geometry(samples * rows, count // rows, width, rows, places, run, native.threads, op.attrs.eps)


FIRST = {"group_norm.forward": forward, "group_norm.backward": backward}
