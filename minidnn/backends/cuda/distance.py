"""Losses of elements with targets or labels, and of pairs of vectors (kernels/distance.cu).

On a GPU a label that names no class cannot raise an error. It makes the loss, and its row of the gradient, NaN."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidnn.backends.cuda.loss import SUMMING, finished, rows_of
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
    over,
    plain,
)
from minidnn.program import Op

FUNCTIONS = ("SIGMOID_CROSS_ENTROPY", "SQUARE", "SMOOTH_L1", "HINGE_L1", "HINGE_L2", "LOGISTIC")  # as in distance.cu


def _elements(op: Op) -> tuple[Argument, ...]:
    """The parameters ELEMENTS of kernels/distance.cu. A weight that is not there is passed as x, and not read."""
    a, x, weights = op.attrs, op.reads[0], len(op.reads) - 2
    labelled, ignores = op.reads[1].dtype == "int32", a.ignore_label is not None
    more = [Read(2 + i if i < weights else 0) for i in range(2)]
    numbers = labelled, weights, ignores, a.ignore_label or 0, FUNCTIONS.index(a.function)
    sizes = np.int64(x.size), np.int64(x.size // x.shape[0])
    return Read(0), Read(1), *more, *sizes, *(np.int32(n) for n in numbers), np.float32(a.sigma)


def _divisor(op: Op) -> np.float64:
    """The divisor; 0: the number of elements that count, which kernels get from the targets."""
    a, x = op.attrs, op.reads[0]
    if a.normalization == "VALID" and a.ignore_label is not None:
        return np.float64(0)
    return np.float64({"FULL": x.size, "VALID": x.size, "BATCH_SIZE": x.shape[0], "NONE": 1}[a.normalization])


def pointwise_forward(op: Op) -> list[Recipe]:
    """One recipe for x t (inside outside) -> loss; in the place of t there may be labels."""
    grid = min(over(op.reads[0].size, BLOCK * 4), SUMMING)
    scratch = Scratch()
    result = scratch.take(grid * 8), scratch.take(grid * 8)
    launch = Launch("distance", "pointwise", (*_elements(op), *result), grid)
    return [scratch.recipe("default", launch, finished(*result, grid, _divisor(op)))]


def pointwise_backward(op: Op) -> list[Recipe]:
    """One recipe for x t (inside outside) -> (dx) (dt)."""
    a, size, divisor = op.attrs, op.reads[0].size, _divisor(op)
    scratch = Scratch()
    steps, parts = [], 1
    counts: Argument = Read(1)  # with a known divisor nothing is counted, and this is not read
    if not divisor:
        parts = min(over(size, BLOCK * 4), BLOCK)
        counts = scratch.take(parts * 4)
        arguments = Read(1), counts, np.int64(size), np.int32(a.ignore_label)
        steps.append(Launch("distance", "count_targets", arguments, parts))
    last = *_into(a.into), int32(parts), np.float64(a.loss_weight), divisor
    steps.append(Launch("distance", "pointwise_backward", (*_elements(op), counts, *last), over(size)))
    return [scratch.recipe("default", *steps)]


def _into(into: Sequence[int]) -> tuple[Argument, ...]:
    """The addresses of the two gradients, and as bits which of them are wanted. One that is not wanted is passed as
    the other, and not written."""
    places = [Write(into.index(i)) if i in into else Write(0) for i in range(2)]
    return *places, int32(sum(1 << i for i in into))


def contrastive_forward(op: Op) -> list[Recipe]:
    """One recipe for a b similar -> loss."""
    x, a = op.reads[0], op.attrs
    g = rows_of((x.shape[0], x.size // x.shape[0]), 1)
    grid = g.grid(SUMMING)
    scratch = Scratch()
    result = scratch.take(grid * 8), scratch.take(grid * 8)
    arguments = Read(0), Read(1), Read(2), *result, *g.arguments, np.float32(a.margin), int32(a.legacy)
    launch = Launch("distance", "contrastive", arguments, grid)
    return [scratch.recipe("default", launch, finished(*result, grid, np.float64(2 * x.shape[0])))]


def contrastive_backward(op: Op) -> list[Recipe]:
    """One recipe for a b similar -> (da) (db)."""
    x, a = op.reads[0], op.attrs
    g = rows_of((x.shape[0], x.size // x.shape[0]), 1)
    *gradients, into = _into(a.into)
    last = np.float32(a.margin), int32(a.legacy), into, np.float32(a.loss_weight / x.shape[0])
    arguments = Read(0), Read(1), Read(2), *gradients, *g.arguments, *last
    return [plain(Launch("distance", "contrastive_backward", arguments, g.grid(MOST_BLOCKS)))]


KINDS = {
    "pointwise_loss.forward": pointwise_forward,
    "pointwise_loss.backward": pointwise_backward,
    "contrastive_loss.forward": contrastive_forward,
    "contrastive_loss.backward": contrastive_backward,
}
