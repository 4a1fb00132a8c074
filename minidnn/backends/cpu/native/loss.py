"""Softmax; its loss and accuracy, if classes are innermost in memory; the sum of a tensor (loss.c)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence

import numpy as np

from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch, plain
from minidnn.backends.rows import rows
from minidnn.program import Op

ENTRIES = {
    "softmax.forward": "loss_softmax",
    "softmax.backward": "loss_softmax_gradient",
    "softmax_loss.forward": "loss_forward",
    "softmax_loss.backward": "loss_backward",
    "accuracy.forward": "loss_accuracy",
    "accuracy.by_class": "loss_accuracy_by_class",
}


class Geometry(Mirrored):
    twin = "loss"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "classes", "threads", "ignores", "ignored", "divisor", "top_k")),
        *((name, ctypes.c_double) for name in ("weight", "smoothing")),
    )


class Elements(Mirrored):
    twin = "elements"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("size", "threads"))


def total(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> the sum of its elements."""
    g = Elements(op.reads[0].size, native.threads)
    scratch, run = Scratch(), native.function("loss_sum")
    sums = scratch.take(native.bytes("loss_sum_bytes", g))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        return [bound(run, g, address(reads[0]), sums.address(workspace), address(writes[0]))]

    return [scratch.recipe(NAME, bind)]


class Columns(Mirrored):
    twin = "loss_columns"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("outer", "length", "inner", "threads"))


def softmax(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> y, or for y dy -> dx."""
    shape, name = op.reads[0].shape, ENTRIES[op.kind]
    axis = op.attrs.axis % len(shape)
    r = rows(shape, axis, axis + 1)
    apart = r.inner > 1
    g = Columns(r.outer, r.length, r.inner, native.threads) if apart else Geometry(r.count, r.length, native.threads)
    run = native.function(f"{name}_columns" if apart else name)

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        return [bound(run, g, *(address(t) for t in (*reads, *writes)))]

    return [plain(bind, NAME)]


def labelled(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x label (matrix) -> loss prob, prob label (matrix) -> dx, or x label -> the share of labels
    predicted right, of all or of each class.

    None if classes are not innermost, or if labels are not int32 with one channel. The call raises ValueError for a
    label that names no class."""
    label, g = op.reads[1], _geometry(native, op)
    if g is None or label.dtype != "int32" or (len(label.shape) == 4 and label.shape[1] != 1):
        return []
    run = native.function(ENTRIES[op.kind])
    scratch = Scratch()
    many = op.kind == "softmax_loss.forward" and (len(op.reads) > 2 or g.smoothing)
    numbers = 2 * g.classes if op.kind == "accuracy.by_class" else g.rows if many else 0
    terms = scratch.take(8 * numbers)

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        matrix = [address(reads[2]) if len(reads) > 2 else 0]
        room = [terms.address(workspace)]
        between = {"accuracy.forward": [], "accuracy.by_class": room, "softmax_loss.backward": matrix,
                   "softmax_loss.forward": matrix + room}  # fmt: skip
        arguments = [*map(address, reads[:2]), *between[op.kind], *map(address, writes)]
        return [checked(run, g, arguments, flat(reads[1]), g.classes)]

    return [scratch.recipe(NAME, bind)]


def checked(run: Callable[..., None], g: Mirrored, arguments: Sequence[int], labels: np.ndarray, classes: int) -> Call:
    """A call of a function that returns -1 - k for a label k that names none of the classes: it raises ValueError."""
    run.restype = ctypes.c_int64  # type: ignore[attr-defined]
    step = bound(run, g, *arguments)

    def call() -> None:
        wrong = step()
        if wrong < 0:
            k = -1 - wrong
            raise ValueError(f"label {labels[k]} (number {k} of the batch) names none of the {classes} classes")

    return call


def _geometry(native: Native, op: Op) -> Geometry | None:
    """The geometry, or None if classes are not innermost."""
    a, shape = op.attrs, op.reads[0].shape
    axis = a.axis % len(shape)
    if axis != (1 if len(shape) == 4 else len(shape) - 1):
        return None
    g = Geometry(math.prod(shape) // shape[axis], shape[axis], native.threads)
    g.ignores, g.ignored = a.ignore_label is not None, a.ignore_label or 0
    if op.kind.startswith("accuracy."):
        g.top_k = a.top_k
    else:
        batch = math.prod(shape[: a.axis])
        g.divisor = {"FULL": g.rows, "VALID": 0, "BATCH_SIZE": batch, "NONE": 1}[a.normalization]
        g.weight, g.smoothing = a.loss_weight, a.label_smoothing
    return g


FIRST = {kind: softmax if kind.startswith("softmax.") else labelled for kind in ENTRIES} | {"objective.sum": total}
