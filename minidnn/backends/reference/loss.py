"""Softmax, its loss, accuracy, and the objective: the weighted sum of all losses, each the sum of a tensor."""

from __future__ import annotations

import math

import numpy as np

TINY = np.finfo(np.float32).tiny  # Caffe's least probability, before its logarithm is taken
LEAST = 1e-20  # the same in an InfogainLoss


def softmax(x, axis):
    """e^x over the sum of e^x along the axis."""
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def softmax_forward(a, reads, writes):
    """x -> y."""
    writes[0][...] = softmax(reads[0], a.axis)


def softmax_backward(a, reads, writes):
    """dx = y (dy - the sum of y dy along the axis)."""
    (y, dy), (dx,) = reads, writes
    dx[...] = y * (dy - (y * dy).sum(a.axis, keepdims=True))


def rows_of(scores, axis):
    """Scores with the classes last, one row per label: (labels, classes)."""
    return np.moveaxis(scores, axis, -1).reshape(-1, scores.shape[axis])


def valid_labels(label, classes, ignore):
    """(labels int64 (n,), 0 where they do not count; bool (n,): whether each counts). Raises ValueError for a label
    that counts and names no class."""
    flat = label.reshape(-1).astype(np.int64)
    counts = np.ones(len(flat), bool) if ignore is None else flat != ignore
    wrong = counts & ((flat < 0) | (flat >= classes))
    if wrong.any():
        k = int(np.flatnonzero(wrong)[0])
        raise ValueError(f"label {flat[k]} (number {k} of the batch) names none of the {classes} classes")
    return np.where(counts, flat, 0), counts


def divided_by(normalization, full, valid, batch):
    """The divisor of a loss: `full` elements, of which `valid` count, in `batch` samples; at least 1."""
    return max({"FULL": full, "VALID": valid, "BATCH_SIZE": batch, "NONE": 1}[normalization], 1)


def normalizer(a, prob, counts):
    """The number that the sum of the losses is divided by."""
    return divided_by(a.normalization, len(counts), int(counts.sum()), math.prod(prob.shape[: a.axis]))


def softmax_loss_forward(a, reads, writes):
    """x label (matrix) -> loss prob. The loss is the sum over the labels that count, divided by the normalizer, of
    -log(prob at the label); or with a matrix of -(the label's row) . log(prob).

    With label smoothing, that is one part, and the mean of -log(prob) over all classes is the other."""
    (x, label, *matrix), (loss, prob) = reads, writes
    prob[...] = softmax(x, a.axis)
    flat, counts = valid_labels(label, x.shape[a.axis], a.ignore_label)
    rows, flat = rows_of(prob, a.axis)[counts], flat[counts]
    # np.maximum keeps NaN: a loss that is NaN must not look like a number.
    if matrix:
        costs = matrix[0].reshape(rows.shape[1], -1)[flat]
        total = -(costs * np.log(np.maximum(rows, LEAST))).sum()
    else:
        total = -np.log(np.maximum(rows[np.arange(len(flat)), flat], TINY)).sum()
    if a.label_smoothing:
        scores = rows_of(x, a.axis)[counts]
        largest = scores.max(1)
        logs = largest - np.log(rows.max(1)) - scores.mean(1)  # the mean of -log(prob), also of what underflows
        total = (1 - a.label_smoothing) * total + a.label_smoothing * logs.sum()
    loss[0] = total / normalizer(a, prob, counts)


def softmax_loss_backward(a, reads, writes):
    """prob label (matrix) -> dx = (prob - 1 at the label) * loss_weight / normalizer; 0 for labels that do not count.

    A matrix puts in place of 1 the label's row, and multiplies prob by the sum of that."""
    (prob, label, *matrix), (dx,) = reads, writes
    flat, counts = valid_labels(label, prob.shape[a.axis], a.ignore_label)
    rows = rows_of(prob, a.axis).copy()
    if matrix:
        costs = matrix[0].reshape(rows.shape[1], -1)[flat]
        rows = rows * costs.sum(1, keepdims=True) - costs
    else:
        rows -= a.label_smoothing / rows.shape[1]
        rows[np.arange(len(flat)), flat] -= 1 - a.label_smoothing
    rows[~counts] = 0
    rows *= prob.dtype.type(a.loss_weight / normalizer(a, prob, counts))
    moved = np.moveaxis(dx, a.axis, -1)
    moved[...] = rows.reshape(moved.shape)


def _right(a, x, label):
    """(the labels, whether each counts, whether its score is reached by fewer than top_k other scores in the row). A
    tie reaches the score.

    A NaN reaches every score, and every score reaches a NaN. In Caffe a label whose score is NaN is right, so a net
    that has diverged scores 100 %.
    """
    flat, counts = valid_labels(label, x.shape[a.axis], a.ignore_label)
    rows = rows_of(x, a.axis)
    own = rows[np.arange(len(flat)), flat]
    better = (~(rows < own[:, None])).sum(1) - 1
    return flat, counts, better < a.top_k


def accuracy(a, reads, writes):
    """x label -> the share of labels that are right."""
    (out,) = writes
    _, counts, right = _right(a, *reads)
    out[0] = (right & counts).sum() / max(int(counts.sum()), 1)


def accuracy_by_class(a, reads, writes):
    """x label -> the share for each class; 0 for one that no label names."""
    (out,) = writes
    flat, counts, right = _right(a, *reads)
    there = np.bincount(flat[counts], minlength=len(out))
    out[...] = np.bincount(flat[right & counts], minlength=len(out)) / np.maximum(there, 1)


def objective(a, reads, writes):
    """The weighted sum of all losses, each (1,)."""
    writes[0][0] = sum(w * loss[0] for w, loss in zip(a.weights, reads, strict=True))


def total(a, reads, writes):
    """x -> the sum of its elements, (1,)."""
    writes[0][0] = reads[0].sum(dtype=np.float64)


KINDS = {
    "softmax.forward": softmax_forward,
    "softmax.backward": softmax_backward,
    "softmax_loss.forward": softmax_loss_forward,
    "softmax_loss.backward": softmax_loss_backward,
    "accuracy.forward": accuracy,
    "accuracy.by_class": accuracy_by_class,
    "objective.forward": objective,
    "objective.sum": total,
}
