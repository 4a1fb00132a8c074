"""The softmax loss of an inner product, and its gradients: products (matmul.py) of some rows at a time, as many
as the op's attributes say, and the softmax loss between them (kernels/loss.cu). The bias's gradient adds up the sums
of these rows (kernels/reduction.cu)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minidnn.backends.cuda import tensor_cores
from minidnn.backends.cuda.loss import SUMMING, divisor_of, finished, rows_of
from minidnn.backends.cuda.matmul import multiply, multiply_on_tensor_cores
from minidnn.backends.cuda.recipe import BLOCK, MOST_BLOCKS, Launch, Read, Recipe, Scratch, Write, int32
from minidnn.backends.cuda.reduction import sum_of_rows
from minidnn.backends.workspace import Space
from minidnn.layers.matmul import MatMulAttrs
from minidnn.program import Op

FLOAT, LABEL, NUMBER = 4, 4, 8  # bytes


def forward(op: Op) -> list[Recipe]:
    """One recipe for x w label (b) -> loss (dx) (dw) (db)."""
    return [_recipe(op, "default", multiply)]


def on_tensor_cores(op: Op) -> list[Recipe]:
    """As `forward`."""
    return [_recipe(op, tensor_cores.NAME, multiply_on_tensor_cores)]


def _recipe(op: Op, name: str, multiply: Callable[..., Launch]) -> Recipe:
    a, (classes, inputs) = op.attrs, op.reads[1].shape
    place = {name: i for i, name in enumerate(a.gradients, 1)}  # among the writes
    rows = op.reads[0].size // inputs
    pieces = [(first, min(a.rows, rows - first)) for first in range(0, rows, a.rows)]
    grids = [rows_of((n, classes), 1).grid(SUMMING) for _, n in pieces]
    scratch = Scratch()
    scores, p = (scratch.take(FLOAT * min(a.rows, rows) * classes) for _ in range(2))
    losses, found = (scratch.take(NUMBER * sum(grids)) for _ in range(2))
    sums = scratch.take(FLOAT * len(pieces) * classes if "db" in place else 0)
    parts = max(1, min(BLOCK, -(-rows // (BLOCK * 4))))
    counted = scratch.take(LABEL * parts)
    divisor, ignores = divisor_of(a, rows, rows), a.ignore_label is not None
    labels = *(np.int64(1) for _ in range(4)), np.int32(a.ignore_label if ignores else 0), int32(ignores)
    soft, bias = (int32(0), np.float32(a.label_smoothing)), Read(3) if len(op.reads) == 4 else None
    steps = []
    if place and not divisor:
        sizes = np.int64(rows), np.int32(a.ignore_label)
        steps.append(Launch("loss", "count_labels", (Read(2), counted, *sizes), parts))
    for i, (first, n) in enumerate(pieces):
        x, label, g = Read(0, FLOAT * first * inputs), Read(2, LABEL * first), rows_of((n, classes), 1)
        part = NUMBER * sum(grids[:i]), NUMBER * grids[i]
        of = [Space(s.offset + part[0], part[1]) for s in (losses, found)]
        steps.append(multiply(MatMulAttrs(1, n, inputs, classes, False, True), x, Read(1), scores, bias))
        numbers = *g.arguments, *labels, *soft
        steps.append(Launch("loss", "softmax_loss_forward", (scores, label, Read(0), p, *of, *numbers), grids[i]))
        if not place:
            continue
        last = int32(parts), np.float64(a.loss_weight), divisor
        ends = p, label, Read(0), Read(2) if divisor else counted, p
        steps.append(Launch("loss", "softmax_loss_backward", (*ends, *numbers, *last), g.grid(MOST_BLOCKS)))
        if "dx" in place:
            dx = Write(place["dx"], x.offset)
            steps.append(multiply(MatMulAttrs(1, n, classes, inputs), p, Read(1), dx))
        if "dw" in place:
            of_w = MatMulAttrs(1, classes, n, inputs, True)
            steps.append(multiply(of_w, p, x, Write(place["dw"]), adds=first > 0))
        if "db" in place:
            own = Space(sums.offset + FLOAT * i * classes, FLOAT * classes)
            steps.append(sum_of_rows(scratch, n, classes, p, own))
    if "db" in place:
        steps.append(sum_of_rows(scratch, len(pieces), classes, sums, Write(place["db"])))
    return scratch.recipe(name, *steps, finished(losses, found, sum(grids), divisor))


KINDS = {"linear_loss.forward": forward}
ON_TENSOR_CORES = {"linear_loss.forward": on_tensor_cores}
