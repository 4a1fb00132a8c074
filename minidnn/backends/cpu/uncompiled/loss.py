"""Softmax with labels: its loss, and accuracy.

Softmax is oneDNN's; NumPy, with arrays in the workspace, looks up the labels. Classes must be innermost (axis 1 of a
2-D or 4-D tensor, or the last axis of any other); else there is no recipe, and the reference's kernel runs.
"""

from __future__ import annotations

import math

import numpy as np

from minidnn.backends.cpu.layout import flat
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.onednn.loss import Softmax
from minidnn.backends.cpu.recipe import BLOCK, Recipe, Scratch, copied
from minidnn.program import Op, Tensor

TINY = np.float32(np.finfo(np.float32).tiny)  # Caffe's FLT_MIN: the least probability whose log is taken


def _plain(axis: int, scores: Tensor, label: Tensor) -> bool:
    """Whether classes are innermost in memory, and labels lie in the order of the rows."""
    innermost = 1 if len(scores.shape) == 4 else len(scores.shape) - 1
    return axis % len(scores.shape) == innermost and not (len(label.shape) == 4 and label.shape[1] != 1)


class _Labels:
    """The workspace for picking one element of each row by its label."""

    def __init__(self, scores: Tensor, axis: int, scratch: Scratch) -> None:
        self.classes = scores.shape[axis % len(scores.shape)]
        self.count = scores.size // self.classes
        self.pieces = {
            "index": (scratch.take(self.count * 8), "int64"),  # the place of the label's element in the flat scores
            "start": (scratch.take(self.count * 8), "int64"),  # the place where each row begins
            "picked": (scratch.take(self.count * 4), "float32"),
            "ignored": (scratch.take(self.count), "bool"),
        }

    def bind(self, label: np.ndarray, ignore: int | None, ws: np.ndarray) -> _BoundLabels:
        arrays = {name: piece.array(ws, dtype) for name, (piece, dtype) in self.pieces.items()}
        return _BoundLabels(self.classes, flat(label), ignore, **arrays)


class _BoundLabels:
    def __init__(self, classes, label, ignore, index, start, picked, ignored) -> None:
        self.classes, self.label, self.ignore = classes, label, ignore
        self.index, self.start, self.picked, self.ignored = index, start, picked, ignored

    def find(self) -> int:
        """Fills `index` and `ignored`, and returns the number of labels that count. Raises ValueError for a label that
        names no class."""
        index = self.index
        index.fill(self.classes)
        np.add.accumulate(index, out=self.start)
        np.subtract(self.start, self.classes, out=self.start)
        np.copyto(index, self.label)
        counted = index.size
        if self.ignore is None:
            self.ignored.fill(False)
        else:
            np.equal(self.label, self.ignore, out=self.ignored)
            np.copyto(index, 0, where=self.ignored)
            counted -= int(np.count_nonzero(self.ignored))
        if index.min() < 0 or index.max() >= self.classes:
            k = int(np.flatnonzero((index < 0) | (index >= self.classes))[0])
            raise ValueError(f"label {index[k]} (number {k} of the batch) names none of the {self.classes} classes")
        np.add(index, self.start, out=index)
        return counted

    def pick(self, scores: np.ndarray) -> np.ndarray:
        """The elements at `index` of the flat scores, one of each row."""
        np.take(scores, self.index, out=self.picked, mode="clip")  # other modes would buffer the output
        return self.picked


def _normalizer(a, rows: int, counted: int, batch: int) -> float:
    divisor = {"FULL": rows, "VALID": counted, "BATCH_SIZE": batch, "NONE": 1}[a.normalization]
    return float(max(divisor, 1))


def softmax_loss_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x label -> loss prob, without label smoothing and without a matrix."""
    (x, label, *matrix), a = op.reads, op.attrs
    if matrix or a.label_smoothing or not _plain(a.axis, x, label):
        return []
    scratch = Scratch()
    softmax = Softmax(dnnl, x, a, scratch)
    labels = _Labels(x, a.axis, scratch)
    batch = math.prod(x.shape[: a.axis])

    def bind(reads, writes, ws):
        found = labels.bind(reads[1], a.ignore_label, ws)
        loss, prob = flat(writes[0]), flat(writes[1])

        def sum_up() -> None:
            counted = found.find()
            picked = found.pick(prob)
            np.maximum(picked, TINY, out=picked)
            np.log(picked, out=picked)
            np.copyto(picked, 0, where=found.ignored)
            loss[0] = -float(np.add.reduce(picked)) / _normalizer(a, picked.size, counted, batch)

        return [softmax.bind(reads[0], writes[1], ws), sum_up]

    return [scratch.recipe("onednn", bind)]


def softmax_loss_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for prob label -> dx = weight / normalizer * (prob - 1 at the label), likewise."""
    (prob, label, *matrix), a = op.reads, op.attrs
    if matrix or a.label_smoothing or not _plain(a.axis, prob, label):
        return []
    scratch = Scratch()
    labels = _Labels(prob, a.axis, scratch)
    batch = math.prod(prob.shape[: a.axis])

    def bind(reads, writes, ws):
        found = labels.bind(reads[1], a.ignore_label, ws)
        dx, rows = flat(writes[0]), flat(writes[0]).reshape(-1, labels.classes)
        move = copied(reads[0], writes[0])

        def call() -> None:
            for step in move:
                step()
            counted = found.find()
            picked = found.pick(dx)
            np.subtract(picked, np.float32(1), out=picked)
            np.put(dx, found.index, picked, mode="clip")
            np.copyto(rows, 0, where=found.ignored[:, None])
            factor = a.loss_weight / _normalizer(a, picked.size, counted, batch)
            np.multiply(dx, np.float32(factor), out=dx)

        return [call]

    return [scratch.recipe("numpy", bind)]


def accuracy_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x label -> the share of rows where fewer than top_k other scores reach the label's. A tie counts
    as reaching it."""
    (x, label), a = op.reads, op.attrs
    if not _plain(a.axis, x, label):
        return []
    scratch = Scratch()
    labels = _Labels(x, a.axis, scratch)
    at_once = max(1, min(labels.count, BLOCK // labels.classes))  # rows
    pieces = (
        (scratch.take(at_once * labels.classes), "bool"),
        (scratch.take(at_once * labels.classes * 4), "float32"),
    )

    def bind(reads, writes, ws):
        found = labels.bind(reads[1], a.ignore_label, ws)
        scores, result = flat(reads[0]), flat(writes[0])
        rows = scores.reshape(-1, labels.classes)
        better, ones = (piece.array(ws, dtype) for piece, dtype in pieces)
        better, ones = better.reshape(-1, labels.classes), ones.reshape(-1, labels.classes)

        def call() -> None:
            counted = found.find()
            picked = found.pick(scores)
            hits = 0
            for i in range(0, len(rows), at_once):
                n = len(rows[i : i + at_once])
                np.copyto(ones[:n], picked[i : i + n, None])  # a comparison that broadcasts would allocate a buffer
                np.less(rows[i : i + n], ones[:n], out=better[:n])
                np.logical_not(better[:n], out=better[:n])  # not `>=`: a NaN counts as reaching any score
                for k in range(n):  # row by row: a reduction along an axis would allocate a buffer in NumPy 2.2
                    rank = np.count_nonzero(better[k])  # the label's own score counts once
                    hits += rank <= a.top_k and not found.ignored[i + k]
            result[0] = hits / counted if counted else 0.0

        return [call]

    return [scratch.recipe("numpy", bind)]


KINDS = {
    "softmax_loss.forward": softmax_loss_forward,
    "softmax_loss.backward": softmax_loss_backward,
    "accuracy.forward": accuracy_forward,
}
