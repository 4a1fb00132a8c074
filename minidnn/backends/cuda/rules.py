"""Optimizers other than SGD (kernels/rules.cu): one pass over a weight, its gradient and its history. One launch takes
many weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minidnn.backends.cuda.multi_tensor import PIECE, batches, by_pieces, places, wide
from minidnn.backends.cuda.recipe import Argument, Launch, Read, Recipe, Write, int32, over, plain
from minidnn.optimizers import RULES
from minidnn.program import MULTI_TENSOR, Op, Tensor

RULED = 60  # most weights of a launch
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
        alike.setdefault((a.numbers, a.scale, a.regularization, a.clipped, a.every, _operands(rule, one)), []).append(
            one
        )
    return [plain(*(_ruled(op, rule, part) for ones in alike.values() for part in batches(ones, RULED)))]


def _operands(rule: str, one: Op) -> tuple[Tensor, ...]:
    """(rate, objective, iteration, clip) of an update. Arguments that the op lacks, and that its kernel does not read,
    are replaced by the rate."""
    if rule == "lamb":
        _, rate, _, _, iteration, _ = one.reads
        return rate, rate, iteration, rate
    rate, objective, clipped = *one.reads[2:4], one.attrs.clipped
    iteration = one.reads[-1 - clipped] if RULES[rule].counts else rate
    return rate, objective, iteration, one.reads[-1] if clipped else rate


def _ruled(op: Op, rule: str, of: Sequence[Op]) -> Launch:
    """The launch for these members of the op."""
    (read, write), a, none = places(op), of[0].attrs, np.uint64(0)
    rate, objective, iteration, clip = (read[t] for t in _operands(rule, of[0]))
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
        tuple(read[one.reads[-1 - clipped]] if RULES[rule].adapts else none for one in of),
    )
    numbers = (
        tuple(np.float32(one.attrs.decay) for one in of),
        tuple(np.float32(one.attrs.lr_mult) for one in of),
        wide(gradients),
    )
    how = {"L1": L1, "L2": L2}[a.regularization] if rule != "adamw" else NONE
    given = rate, objective, iteration, clip, *_own(a), np.float32(a.scale), int32(how), int32(clipped)
    return by_pieces("rules", rule, RULED, [one.writes[0] for one in of], tensors, numbers, *given)


def lamb_moments(op: Op) -> list[Recipe]:
    """One recipe for w dw objective m v iteration (clip) -> m v (sums)."""
    (w, dw), a = op.reads[:2], op.attrs
    clip, summed = Read(6) if a.clipped else Read(2), len(op.writes) > 2
    pointers = Read(0), Read(1), Write(0), Write(1), Read(2), Read(5), clip, Write(2 * summed)
    numbers = (
        int32(summed),
        *_own(a),
        np.float32(a.decay),
        np.float32(a.scale),
        int32(a.clipped),
        np.int64(w.size),
    )
    return [plain(Launch("rules", f"lamb_moments{_wide(dw)}", (*pointers, *numbers), over(w.size, PIECE)))]


KINDS = {
    **{f"{rule}.update{each}": update for rule in RULES for each in ("", MULTI_TENSOR)},
    "lamb.moments": lamb_moments,
}
