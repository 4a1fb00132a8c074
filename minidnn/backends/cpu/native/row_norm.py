"""LayerNorm, RMSNorm, MVN and Normalize (row_norm.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.native.convert import FORMATS, format_of
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch, plain
from minidnn.backends.rows import rows
from minidnn.program import Op, Tensor

FLOAT = 4  # bytes
DIVISORS = ("VARIANCE", "DEVIATION", "NORM", "NONE")  # in the order of the enum in C


class Geometry(Mirrored):
    twin = "row_norm"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("outer", "length", "inner", "centred", "divisor", "threads", "format")),
        ("eps", ctypes.c_double),
    )


def forward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x (gamma beta) -> y (inverse) (mean)."""
    g, run = _geometry(native, op), native.function("row_norm_forward")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        x, *scale = map(address, reads)
        y, *kept = map(address, writes)
        return [bound(run, g, x, *(scale or [0, 0]), y, *kept, *[0] * (2 - len(kept)))]

    return [plain(bind, NAME)]


def backward_data(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x dy inverse mean gamma -> dx, y dy inverse -> dx, or dy -> dx."""
    g, run = _geometry(native, op), native.function("row_norm_backward")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        given = [*map(address, reads)] if len(reads) > 1 else [0, address(reads[0])]
        return [bound(run, g, *given, *[0] * (5 - len(given)), address(writes[0]))]

    return [plain(bind, NAME)]


def backward_filter(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x dy inverse mean -> dgamma dbeta."""
    g, run = _geometry(native, op), native.function("row_norm_filter")
    scratch = Scratch()
    sums = scratch.take(native.bytes("row_norm_filter_bytes", g))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        return [bound(run, g, *map(address, reads), *map(address, writes), sums.address(workspace))]

    return [scratch.recipe(NAME, bind)]


def _geometry(native: Native, op: Op) -> Geometry:
    a, r = op.attrs, rows(op.reads[0].shape, op.attrs.first, op.attrs.last)
    return Geometry(
        r.outer, r.length, r.inner, a.centred, DIVISORS.index(a.divisor), native.threads, format_of(op), a.eps
    )


def _as_they_are(op: Op, g: Geometry, *rows: Tensor) -> bool:
    """Whether kernels take the op's tensors: rows of 16 bits, each a piece of memory, and all others in float32."""
    return g.inner == 1 and {t for t in op.tensors if t.dtype in FORMATS} == {*rows}


def forward_half(native: Native, op: Op) -> list[Recipe]:
    """One recipe as `forward`, of x and y of 16 bits; none of other tensors (`_as_they_are`)."""
    g, run, scratch = _geometry(native, op), native.function("row_norm_forward_half"), Scratch()
    copies = scratch.take(FLOAT * g.length * g.threads)

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        x, *scale = map(address, reads)
        y, *kept = map(address, writes)
        ends = x, *(scale or [0, 0]), y, *kept, *[0] * (2 - len(kept))
        return [bound(run, g, *ends, copies.address(workspace))]

    return [scratch.recipe(NAME, bind)] if _as_they_are(op, g, op.reads[0], op.writes[0]) else []


def backward_data_half(native: Native, op: Op) -> list[Recipe]:
    """One recipe as `backward_data`, of x, y, dy and dx of 16 bits; none of other tensors (`_as_they_are`)."""
    g, run, scratch = _geometry(native, op), native.function("row_norm_backward_half"), Scratch()
    copies = scratch.take(FLOAT * 2 * g.length * g.threads)

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        given = [*map(address, reads)] if len(reads) > 1 else [0, address(reads[0])]
        ends = *given, *[0] * (5 - len(given)), address(writes[0])
        return [bound(run, g, *ends, copies.address(workspace))]

    return [scratch.recipe(NAME, bind)] if _as_they_are(op, g, *op.reads[:2], op.writes[0]) else []


def backward_filter_half(native: Native, op: Op) -> list[Recipe]:
    """One recipe as `backward_filter`, of x and dy of 16 bits; none of other tensors (`_as_they_are`)."""
    g, run, scratch = _geometry(native, op), native.function("row_norm_filter_half"), Scratch()
    sums = scratch.take(native.bytes("row_norm_filter_half_bytes", g))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        return [bound(run, g, *map(address, reads), *map(address, writes), sums.address(workspace))]

    return [scratch.recipe(NAME, bind)] if _as_they_are(op, g, *op.reads[:2]) else []


FIRST = {
    "row_norm.forward": forward,
    "row_norm.backward_data": backward_data,
    "row_norm.backward_filter": backward_filter,
}
HALF = {
    "row_norm.forward": forward_half,
    "row_norm.backward_data": backward_data_half,
    "row_norm.backward_filter": backward_filter_half,
}
