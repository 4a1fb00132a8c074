"""Softmax, its loss, accuracy, and the objective: the weighted sum of all losses, each the sum of a tensor."""

from __future__ import annotations

import math

import numpy as np

TINY = np.finfo(np.float32).tiny  # Caffe's least probability, before its logarithm is taken


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


def normalizer(a, prob, counts):
    """The number that the sum of the losses is divided by."""
    batch = math.prod(prob.shape[: a.axis])
    return max({"FULL": len(counts), "VALID": int(counts.sum()), "BATCH_SIZE": batch, "NONE": 1}[a.normalization], 1)


def softmax_loss_forward(a, reads, writes):
    """x label -> loss prob. The loss is the sum of -log(prob at the label) over the labels that count, divided by the
    normalizer."""
    (x, label), (loss, prob) = reads, writes
    prob[...] = softmax(x, a.axis)
    flat, counts = valid_labels(label, x.shape[a.axis], a.ignore_label)
    chosen = rows_of(prob, a.axis)[np.arange(len(flat)), flat][counts]
    # np.maximum keeps NaN: a loss that is NaN must not look like a number.
    loss[0] = -np.log(np.maximum(chosen, TINY)).sum() / normalizer(a, prob, counts)


def softmax_loss_backward(a, reads, writes):
    """dx = (prob - 1 at the label) * loss_weight / normalizer; 0 for labels that do not count."""
    (prob, label), (dx,) = reads, writes
    flat, counts = valid_labels(label, prob.shape[a.axis], a.ignore_label)
    rows = rows_of(prob, a.axis).copy()
    rows[np.arange(len(flat)), flat] -= 1
    rows[~counts] = 0
    rows *= prob.dtype.type(a.loss_weight / normalizer(a, prob, counts))
    moved = np.moveaxis(dx, a.axis, -1)
    moved[...] = rows.reshape(moved.shape)


def accuracy(a, reads, writes):
    """The share of labels whose score is reached by fewer than top_k other scores in the row. A tie reaches the score.

    A NaN reaches every score, and every score reaches a NaN. In Caffe a label whose score is NaN is right, so a net
    that has diverged scores 100 %.
    """
    (x, label), (out,) = reads, writes
    flat, counts = valid_labels(label, x.shape[a.axis], a.ignore_label)
    rows = rows_of(x, a.axis)
    own = rows[np.arange(len(flat)), flat]
    better = (~(rows < own[:, None])).sum(1) - 1
    out[0] = ((better < a.top_k) & counts).sum() / max(int(counts.sum()), 1)


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
    "objective.forward": objective,
    "objective.sum": total,
}
