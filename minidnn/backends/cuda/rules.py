"""Optimizers other than SGD (kernels/rules.cu): one pass over a weight, its gradient and its history. One launch takes
many weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minidnn.backends.cuda.each import batches, by_pieces, places, wide
from minidnn.backends.cuda.recipe import BLOCK, Argument, Launch, Read, Recipe, Scratch, Space, Write, plain
from minidnn.program import EACH, Op, Tensor

RULED = 60  # most weights of a launch
MOST = 1024  # most blocks of a kernel that adds up squares
PER_BLOCK = BLOCK * 16  # values that such a block should have
RULES = ("nesterov", "adagrad", "rmsprop", "adadelta", "adam", "adamw", "lars", "lamb")
COUNTED = ("adam", "adamw", "lamb")  # those that read the iteration
SCALED = ("lars", "lamb")  # those that read a ratio of the weight
NONE, L1, L2 = 0, 1, 2


def _own(attrs: Any) -> tuple[Argument, ...]:
    """The rule's numbers, and the micro-batches of an update."""
    a, b, c = (*attrs.numbers, 0.0, 0.0)[:3]
    return np.float64(a), np.float64(b), np.float64(c), np.int64(attrs.every)


def _wide(dw: Tensor) -> str:
    """The end of the name of a kernel for gradients of this type."""
    return "_wide" if dw.dtype == "float32" else ""


def update(op: Op) -> list[Recipe]:
    """One recipe for w dw rate objective h (v) (iteration or ratio) (clip) -> w h (v), in place, for one weight or for
    several; LAMB's: w rate m v iteration ratio -> w. Nothing is changed if the objective or the clipping factor is not
    finite."""
    rule = op.family
    alike: dict[tuple, list[Op]] = {}  # members by all that a launch has only once
    for one in op.members:
        a = one.attrs
        alike.setdefault((a.numbers, a.scale, a.regularization, a.clipped, a.every, _given(rule, one)), []).append(one)
    return [plain(*(_ruled(op, rule, part) for ones in alike.values() for part in batches(ones, RULED)))]


def _given(rule: str, one: Op) -> tuple[Tensor, ...]:
    """(rate, objective, iteration, clip) of an update. What it does not have, and its kernel does not read, is the
    rate."""
    if rule == "lamb":
        _, rate, _, _, iteration, _ = one.reads
        return rate, rate, iteration, rate
    rate, objective, clipped = *one.reads[2:4], one.attrs.clipped
    iteration = one.reads[-1 - clipped] if rule in COUNTED else rate
    return rate, objective, iteration, one.reads[-1] if clipped else rate


def _ruled(op: Op, rule: str, of: Sequence[Op]) -> Launch:
    """The launch for these members of the op."""
    (read, write), a, none = places(op), of[0].attrs, np.uint64(0)
    rate, objective, iteration, clip = (read[t] for t in _given(rule, of[0]))
    lamb = rule == "lamb"
    history = [one.reads[2:4] if lamb else one.writes[1:] for one in of]
    at: Mapping[Tensor, Argument] = read if lamb else write
    gradients = [one.reads[0 if lamb else 1] for one in of]
    clipped = a.clipped and not lamb
    tensors = (
        tuple(write[one.writes[0]] for one in of),
        tuple(read[dw] for dw in gradients),
        tuple(at[h[0]] for h in history),
        tuple(at[h[1]] if len(h) > 1 else none for h in history),
        tuple(read[one.reads[-1 - clipped]] if rule in SCALED else none for one in of),
    )
    numbers = (
        tuple(np.float32(one.attrs.decay) for one in of),
        tuple(np.float32(one.attrs.lr_mult) for one in of),
        wide(gradients),
    )
    how = {"L1": L1, "L2": L2}[a.regularization] if rule != "adamw" else NONE
    given = rate, objective, iteration, clip, *_own(a), np.float32(a.scale), np.int32(how), np.int32(clipped)
    return by_pieces("rules", rule, RULED, [one.writes[0] for one in of], tensors, numbers, *given)


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


KINDS = {
    **{f"{rule}.update{each}": update for rule in RULES for each in ("", EACH)},
    "lars.ratio": lars_ratio,
    "lamb.ratio": lamb_ratio,
}
