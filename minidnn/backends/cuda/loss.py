"""Softmax along any axis, its loss, accuracy, the sum of a tensor, and the objective, which adds up the losses.

On a GPU a label that names no class cannot raise an error. It makes the loss, the accuracy and its row of the gradient
NaN. If the objective is not finite, no weight is changed.
"""

from __future__ import annotations

import math

import numpy as np

from minidnn.backends.cuda.recipe import (
    BLOCK,
    MOST_BLOCKS,
    Argument,
    Launch,
    Read,
    Recipe,
    Scratch,
    Write,
    int32,
    plain,
)
from minidnn.backends.cuda.rows import Shared, shared
from minidnn.backends.workspace import Space
from minidnn.program import Op, Tensor

SUMMING = 1024  # most blocks whose sums another kernel adds up
OBJECTIVES = 4  # losses that one launch adds up


def rows_of(shape: tuple[int, ...], axis: int) -> Shared:
    """The rows of a tensor of this shape along an axis."""
    axis %= len(shape)
    return shared(shape, axis, axis + 1)


def softmax_forward(op: Op) -> list[Recipe]:
    """One recipe for x -> y."""
    g = rows_of(op.reads[0].shape, op.attrs.axis)
    return [plain(Launch("loss", "softmax_forward", (Read(0), Write(0), *g.arguments), g.grid(MOST_BLOCKS)))]


def softmax_backward(op: Op) -> list[Recipe]:
    """One recipe for y dy -> dx."""
    g = rows_of(op.reads[0].shape, op.attrs.axis)
    return [plain(Launch("loss", "softmax_backward", (Read(0), Read(1), Write(0), *g.arguments), g.grid(MOST_BLOCKS)))]


def _labels(scores: Tensor, label: Tensor, a) -> tuple[np.generic, ...]:
    """The parameters LABELS of kernels/loss.cu: how to find a row's label, and which label is ignored. Raises
    ValueError if labels are not int32."""
    shape, axis = scores.shape, a.axis % len(scores.shape)
    if label.dtype != "int32":
        raise ValueError(f"{label.name}: labels are int32, not {label.dtype}")
    of_row, of_label = (1, 1), (1, 1)  # (rows, columns) of the matrices to transpose
    if len(shape) == 4 and axis != 1:
        of_row = {0: shape[2] * shape[3], 2: shape[3], 3: shape[2]}[axis], shape[1]
    if len(label.shape) == 4:
        of_label = label.shape[1], label.shape[2] * label.shape[3]
    ignores = a.ignore_label is not None
    turns = (np.int64(n) for n in (*of_row, *of_label))
    return *turns, np.int32(a.ignore_label if ignores else 0), int32(ignores)


def divisor_of(a, full: int, batch: int) -> np.float64:
    """The divisor of the sum of losses of `full` labels in `batch` samples. 0 means the number of labels that count,
    which kernels get from the labels."""
    if a.normalization == "VALID" and a.ignore_label is not None:
        return np.float64(0)
    known = {"FULL": full, "VALID": full, "BATCH_SIZE": batch, "NONE": 1}
    return np.float64(max(known[a.normalization], 1))


def _divisor(a, rows: Shared, scores: Tensor) -> np.float64:
    return divisor_of(a, rows.count, math.prod(scores.shape[: a.axis]))


def finished(losses: Space, counted: Space, grid: int, divisor: np.float64) -> Launch:
    """The launch that adds up what `grid` blocks have found, divides it, and writes the loss. A divisor of 0 means the
    number of what counts."""
    return Launch("loss", "loss_finish", (losses, counted, Write(0), int32(grid), divisor), grid=1)


def _softened(op: Op) -> tuple[Argument, tuple[np.generic, ...]]:
    """The matrix of what mistakes cost, and two parameters: whether there is one, and the label smoothing. A matrix
    that is not there is passed as the first read, and not read."""
    costs = len(op.reads) > 2
    return Read(2 if costs else 0), (int32(costs), np.float32(op.attrs.label_smoothing))


def softmax_loss_forward(op: Op) -> list[Recipe]:
    """One recipe for x label (matrix) -> loss prob."""
    (x, label), a = op.reads[:2], op.attrs
    g = rows_of(x.shape, a.axis)
    grid = g.grid(SUMMING)
    scratch = Scratch()
    losses, counted = scratch.take(grid * 8), scratch.take(grid * 8)
    matrix, soft = _softened(op)
    arguments = Read(0), Read(1), matrix, Write(1), losses, counted, *g.arguments, *_labels(x, label, a), *soft
    launch = Launch("loss", "softmax_loss_forward", arguments, grid)
    return [scratch.recipe("default", launch, finished(losses, counted, grid, _divisor(a, g, x)))]


def softmax_loss_backward(op: Op) -> list[Recipe]:
    """One recipe for prob label (matrix) -> dx."""
    (prob, label), a = op.reads[:2], op.attrs
    g = rows_of(prob.shape, a.axis)
    divisor = _divisor(a, g, prob)
    numbers = *g.arguments, *_labels(prob, label, a)
    scratch = Scratch()
    steps, parts = [], 1
    if not divisor:
        parts = max(1, min(BLOCK, -(-label.size // (BLOCK * 4))))
        counted = scratch.take(parts * 4)
        sizes = np.int64(label.size), np.int32(a.ignore_label)
        steps.append(Launch("loss", "count_labels", (Read(1), counted, *sizes), parts))
    # With a known divisor nothing is counted. Then the labels are passed instead of counts, and are not read as such.
    counts = Read(1) if divisor else counted
    matrix, soft = _softened(op)
    last = *soft, int32(parts), np.float64(a.loss_weight), divisor
    arguments = Read(0), Read(1), matrix, counts, Write(0), *numbers, *last
    steps.append(Launch("loss", "softmax_loss_backward", arguments, g.grid(MOST_BLOCKS)))
    return [scratch.recipe("default", *steps)]


def accuracy_forward(op: Op) -> list[Recipe]:
    """One recipe for x label -> the share of labels predicted right."""
    (x, label), a = op.reads, op.attrs
    g = rows_of(x.shape, a.axis)
    grid = g.grid(SUMMING)
    scratch = Scratch()
    result = scratch.take(3 * grid * 8)
    arguments: tuple[Argument, ...] = (Read(0), Read(1), result, *g.arguments, *_labels(x, label, a), int32(a.top_k))
    return [
        scratch.recipe(
            "default",
            Launch("loss", "accuracy", arguments, grid),
            Launch("loss", "accuracy_finish", (result, Write(0), int32(grid)), grid=1),
        )
    ]


def accuracy_by_class(op: Op) -> list[Recipe]:
    """One recipe for x label -> the share of labels predicted right, for each class."""
    (x, label), a = op.reads, op.attrs
    g = rows_of(x.shape, a.axis)
    arguments: tuple[Argument, ...] = (Read(0), Read(1), Write(0), *g.arguments, *_labels(x, label, a), int32(a.top_k))
    return [plain(Launch("loss", "accuracy_by_class", arguments, op.writes[0].size))]


def objective_forward(op: Op) -> list[Recipe]:
    """One recipe for losses -> objective, their weighted sum, added in their order."""
    steps = []
    for start in range(0, len(op.reads), OBJECTIVES):
        weights = list(op.attrs.weights[start : start + OBJECTIVES])
        n = len(weights)
        losses = [Read(start + min(i, n - 1)) for i in range(OBJECTIVES)]  # the last loss fills the unused places
        factors = [np.float32(w) for w in weights] + [np.float32(0)] * (OBJECTIVES - n)
        arguments = *losses, Write(0), int32(n), int32(start > 0), *factors
        steps.append(Launch("loss", "objective", arguments, grid=1, block=32))
    return [plain(*steps)]


def objective_sum(op: Op) -> list[Recipe]:
    """One recipe for x -> the sum of its elements."""
    n, scratch = op.reads[0].size, Scratch()
    grid = max(1, min(SUMMING, -(-n // (BLOCK * 16))))
    partial = scratch.take(grid * 8)
    return [
        scratch.recipe(
            "default",
            Launch("loss", "sum_elements", (Read(0), partial, np.int64(n)), grid),
            Launch("loss", "sum_finish", (partial, Write(0), int32(grid)), grid=1),
        )
    ]


KINDS = {
    "softmax.forward": softmax_forward,
    "softmax.backward": softmax_backward,
    "softmax_loss.forward": softmax_loss_forward,
    "softmax_loss.backward": softmax_loss_backward,
    "accuracy.forward": accuracy_forward,
    "accuracy.by_class": accuracy_by_class,
    "objective.forward": objective_forward,
    "objective.sum": objective_sum,
}
