"""The softmax loss of an inner product, and its gradients: products of matmul.c, and between them the loss of some rows
(linear_loss.c).

An algorithm takes ROWS rows at a time, or a multiple; its workspace has their scores. No bit depends on how many: a
score is one row's, and the gradient of a parameter adds up the rows in their order, in blocks that begin at multiples
of ROWS.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.native import matmul
from minidnn.backends.cpu.native.binding import Mirrored, Native, bound
from minidnn.backends.cpu.native.loss import checked
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.program import Op

ROWS, TIMES = 256, (4, 1)  # the multiples of ROWS that are offered, the preferred one first
FLOAT, LABEL, TERM = 4, 4, 8  # bytes


class Geometry(Mirrored):
    twin = "linear_loss"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "classes", "threads", "ignores", "ignored", "divisor")),
        *((name, ctypes.c_double) for name in ("weight", "smoothing")),
    )


def forward(native: Native, op: Op) -> list[Recipe]:
    """Recipes for x w label (b) -> loss (dx) (dw) (db)."""
    w, label = op.reads[1:3]
    if label.dtype != "int32":
        return []
    rows = op.reads[0].size // w.shape[1]
    counts = dict.fromkeys(min(times * ROWS, -(-rows // ROWS) * ROWS) for times in TIMES)
    return [_recipe(native, op, rows, count) for count in counts]


def _recipe(native: Native, op: Op, rows: int, count: int) -> Recipe:
    a, (classes, inputs) = op.attrs, op.reads[1].shape
    divisor = {"FULL": rows, "VALID": 0, "BATCH_SIZE": rows, "NONE": 1}[a.normalization]

    def of(n: int) -> Geometry:
        ignores, ignored = a.ignore_label is not None, a.ignore_label or 0
        return Geometry(n, classes, native.threads, ignores, ignored, divisor, a.loss_weight, a.label_smoothing)

    pieces = [(first, min(count, rows - first)) for first in range(0, rows, count)]
    scored, to_x, to_w = {}, {}, {}
    for n in {n for _, n in pieces}:
        scored[n] = matmul.geometry(native, n, inputs, classes, turned_b=True)
        if "dx" in a.gradients:
            to_x[n] = matmul.geometry(native, n, classes, inputs)
    if "dw" in a.gradients:
        for first, n in pieces:
            to_w[first] = matmul.geometry(native, classes, n, inputs, turned_a=True, accumulate=first > 0)
    scratch = Scratch()
    scores, terms, counted = (scratch.take(b) for b in (FLOAT * min(count, rows) * classes, TERM * rows, TERM))
    panels = scratch.take(
        max(native.bytes("matmul_bytes", g) for g in (*scored.values(), *to_x.values(), *to_w.values()))
    )
    multiply, some = native.function("matmul_forward"), native.function("linear_loss_rows")
    begin, end = native.function("linear_loss_count"), native.function("linear_loss_sum")
    clear, sum_up = native.function("linear_loss_clear"), native.function("linear_loss_add")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        x, w, label, *bias = map(address, reads)
        place = dict(zip(a.gradients, map(address, writes[1:]), strict=True))
        found, each, number, space = (t.address(workspace) for t in (scores, terms, counted, panels))
        calls: list[Call] = [checked(begin, of(rows), [label, number], flat(reads[2]), classes)]
        if "db" in place:
            calls.append(bound(clear, of(rows), place["db"]))
        for first, n in pieces:
            own = x + FLOAT * first * inputs
            calls.append(bound(multiply, scored[n], own, w, *(bias or [0]), found, space))
            calls.append(bound(some, of(n), label + LABEL * first, number, each + TERM * first, found))
            if "dx" in place:
                calls.append(bound(multiply, to_x[n], found, w, 0, place["dx"] + FLOAT * first * inputs, space))
            if "dw" in place:
                calls.append(bound(multiply, to_w[first], found, own, 0, place["dw"], space))
            for begins in range(0, n, ROWS) if "db" in place else ():
                some_rows = of(min(ROWS, n - begins)), found + FLOAT * begins * classes
                calls.append(bound(sum_up, *some_rows, place["db"]))
        return [*calls, bound(end, of(rows), label, number, each, address(writes[0]))]

    return scratch.recipe(f"rows_{count}", bind)


MORE = {"linear_loss.forward": forward}
