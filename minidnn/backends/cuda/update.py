"""From gradients to weights (kernels/update.cu): the norm of all gradients for clipping, and SGD in one pass over w, dw
and h. One launch takes many weights or gradients, each in its own number format."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidnn.backends.cuda.each import batches, by_pieces, firsts, places, wide
from minidnn.backends.cuda.recipe import BLOCK, Launch, Read, Recipe, Scratch, Space, Table, Write, plain
from minidnn.program import Op

UPDATES, GRADIENTS = 80, 160  # most weights of a launch, and most gradients of one that squares them
MOST = 1024  # most blocks for the squares of one gradient
PER_BLOCK = BLOCK * 16  # values of a gradient that a block should have


def sgd_update(op: Op) -> list[Recipe]:
    """One recipe for w dw rate objective (h) (clip) -> w (h), in place, for one weight or for several. Nothing is
    changed if the objective or the clipping factor is not finite."""
    alike: dict[tuple, list[Op]] = {}  # members by all that a launch has only once
    for one in op.members:
        a, given = one.attrs, one.reads[2:4] + one.reads[-1:] * one.attrs.clipped
        alike.setdefault((a.momentum, a.scale, a.regularization, a.clipped, given), []).append(one)
    return [plain(*(_sgd(op, part) for ones in alike.values() for part in batches(ones, UPDATES)))]


def _sgd(op: Op, of: Sequence[Op]) -> Launch:
    """The launch for these members of the op."""
    (read, write), a = places(op), of[0].attrs
    rate, objective = (read[t] for t in of[0].reads[2:4])
    clip = read[of[0].reads[-1]] if a.clipped else rate  # without clipping it is not read
    tensors = (
        tuple(write[one.writes[0]] for one in of),
        tuple(read[one.reads[1]] for one in of),
        tuple(write[one.writes[1]] if a.momentum else np.uint64(0) for one in of),
    )
    numbers = (
        tuple(np.float32(one.attrs.lr_mult) for one in of),
        tuple(np.float32(one.attrs.decay) for one in of),
        wide([one.reads[1] for one in of]),
    )
    given = rate, objective, clip, np.int32(a.clipped), np.float32(a.scale), np.float32(a.momentum)
    lasso = np.int32(a.regularization == "L1")
    kernel = "sgd_momentum" if a.momentum else "sgd"
    return by_pieces("update", kernel, UPDATES, [one.reads[0] for one in of], tensors, numbers, *given, lasso)


def gradient_clip(op: Op) -> list[Recipe]:
    """One recipe for dw1 .. dwn -> factor: the factor, at most 1, that scales their common L2 norm down to the
    threshold."""
    scratch = Scratch()
    steps, partial, count = _squares(op, 0, scratch)
    last = partial, Write(0), np.int32(count), np.float64(op.attrs.threshold)
    return [scratch.recipe("default", *steps, Launch("update", "clip_factor", last, grid=1))]


def gradient_unscale(op: Op) -> list[Recipe]:
    """One recipe for state objective dw1 .. dwn -> state factor. The factor undoes the loss scale and clips."""
    a, scratch = op.attrs, Scratch()
    steps, partial, count = _squares(op, 2, scratch)
    numbers = np.int32(count), np.float64(a.threshold), np.int32(a.period), np.float32(a.most), np.float32(a.least)
    last = partial, Read(1), Write(0), Write(1), *numbers
    return [scratch.recipe("default", *steps, Launch("update", "unscale_factor", last, grid=1))]


def _squares(op: Op, start: int, scratch: Scratch) -> tuple[list[Launch], Space, int]:
    """Sums of the squares of all reads from `start` on: (launches, the piece that they write, the number of sums)."""
    blocks = [max(1, min(MOST, -(-t.size // PER_BLOCK))) for t in op.reads]
    partial = scratch.take(sum(blocks[start:]) * 8)
    steps, done = [], 0
    for part in batches(range(start, len(op.reads)), GRADIENTS):
        sums = [blocks[i] for i in part]
        columns = (
            tuple(Read(i) for i in part),
            tuple(np.int64(op.reads[i].size) for i in part),
            firsts(sums),
            tuple(np.int32(n) for n in sums),
            wide([op.reads[i] for i in part]),
        )
        grid = sum(sums)
        arguments = Table(GRADIENTS, columns), np.int32(len(part)), Space(partial.offset + done * 8, grid * 8)
        steps.append(Launch("update", "squares", arguments, grid))
        done += grid
    return steps, partial, done


KINDS = {
    "gradient.clip": gradient_clip,
    "gradient.unscale": gradient_unscale,
    "sgd.update": sgd_update,
    "sgd.update_each": sgd_update,
}
