"""Optimizers other than SGD (kernels/rules.cu): one pass over a weight, its gradient and its history."""

from __future__ import annotations

from typing import Any

import numpy as np

from minidnn.backends.cuda.recipe import BLOCK, Argument, Launch, Read, Recipe, Scratch, Space, Write, by_fours, plain
from minidnn.program import Op, Tensor

MOST = 1024  # most blocks of a kernel that adds up squares
PER_BLOCK = BLOCK * 16  # values that such a block should have
RULES = ("nesterov", "adagrad", "rmsprop", "adadelta", "adam", "adamw", "lars")
COUNTED = ("adam", "adamw")  # those that read the iteration
NONE, L1, L2 = 0, 1, 2


def _own(attrs: Any) -> tuple[Argument, ...]:
    """The rule's numbers, and the micro-batches of an update."""
    a, b, c = (*attrs.numbers, 0.0, 0.0)[:3]
    return np.float64(a), np.float64(b), np.float64(c), np.int64(attrs.every)


def _wide(dw: Tensor) -> str:
    """The end of the name of a kernel for gradients of this type."""
    return "_wide" if dw.dtype == "float32" else ""


def update(op: Op) -> list[Recipe]:
    """One recipe for w dw rate objective h (v) (iteration or ratio) (clip) -> w h (v), in place."""
    rule, a, rate = op.family, op.attrs, Read(2)
    last = len(op.reads) - a.clipped  # of the reads before the clip factor
    history = [Write(i) for i in range(1, len(op.writes))]
    iteration = Read(last - 1) if rule in COUNTED else rate  # what is not read points to the rate
    ratio = Read(last - 1) if rule == "lars" else rate
    clip = Read(last) if a.clipped else rate
    how = {"L1": L1, "L2": L2}[a.regularization] if a.decay and rule != "adamw" else NONE
    pointers = Write(0), Read(1), history[0], history[-1], rate, Read(3), iteration, ratio, clip
    numbers = np.float32(a.decay), np.float32(a.scale), np.float32(a.lr_mult), np.int32(how), np.int32(a.clipped)
    name = f"{rule}{_wide(op.reads[1])}"
    return [plain(by_fours("rules", name, op.reads[0].size, *pointers, *_own(a), *numbers))]


def _sums(w: Tensor, scratch: Scratch) -> tuple[Space, int]:
    """(the piece for two sums of each block, the number of blocks)"""
    blocks = max(1, min(MOST, -(-w.size // PER_BLOCK)))
    return scratch.take(blocks * 16), blocks


def lars_ratio(op: Op) -> list[Recipe]:
    """One recipe for w dw objective (clip) -> ratio."""
    (w, dw), a, scratch = op.reads[:2], op.attrs.rule, Scratch()
    partial, blocks = _sums(w, scratch)
    squares = Launch("rules", f"lars_squares{_wide(dw)}", (Read(0), Read(1), partial, np.int64(w.size)), blocks)
    clip = Read(3) if a.clipped else Read(2)
    numbers = np.float64(a.numbers[1]), np.float32(a.decay), np.float32(a.scale)
    flags = np.int32(a.clipped), np.int32(op.attrs.adapted)
    ratio = Launch(
        "rules", "lars_ratio", (partial, np.int32(blocks), Read(2), clip, Write(0), *numbers, *flags), grid=1
    )
    return [scratch.recipe("default", squares, ratio)]


def lamb_ratio(op: Op) -> list[Recipe]:
    """One recipe for w dw objective m v iteration (clip) -> m v ratio."""
    (w, dw), a, scratch = op.reads[:2], op.attrs.rule, Scratch()
    partial, blocks = _sums(w, scratch)
    clip, clipped = Read(6) if a.clipped else Read(2), np.int32(a.clipped)
    pointers = Read(0), Read(1), Write(0), Write(1), Read(2), Read(5), clip, partial
    numbers = *_own(a), np.float32(a.decay), np.float32(a.scale), clipped, np.int64(w.size)
    moments = Launch("rules", f"lamb_moments{_wide(dw)}", (*pointers, *numbers), blocks)
    last = partial, np.int32(blocks), Read(2), clip, Write(2), clipped, np.int32(op.attrs.adapted)
    return [scratch.recipe("default", moments, Launch("rules", "lamb_ratio", last, grid=1))]


def lamb_update(op: Op) -> list[Recipe]:
    """One recipe for w rate m v iteration ratio -> w."""
    a, pointers = op.attrs, (Read(i) for i in range(1, 6))
    numbers = np.float32(a.decay), np.float32(a.lr_mult)
    return [plain(by_fours("rules", "lamb", op.reads[0].size, Write(0), *pointers, *_own(a), *numbers))]


KINDS = {
    **{f"{rule}.update": update for rule in RULES},
    "lars.ratio": lars_ratio,
    "lamb.ratio": lamb_ratio,
    "lamb.update": lamb_update,
}
