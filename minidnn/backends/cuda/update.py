"""From gradients to weights (kernels/update.cu): accumulation, the norm of all gradients for clipping, and SGD in one
pass over w, dw and h."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cuda.recipe import (
    BLOCK,
    Argument,
    Launch,
    Read,
    Recipe,
    Scratch,
    Space,
    Write,
    by_fours,
    over,
    plain,
)
from minidnn.program import Op

AT_ONCE = 8  # most gradients that one launch squares
MOST = 1024  # most blocks for one gradient
PER_BLOCK = BLOCK * 16  # values that a block should have


def accumulate(op: Op) -> list[Recipe]:
    """One recipe for total dw -> total, which becomes total + dw, in float32."""
    return [plain(by_fours("update", "accumulate", op.writes[0].size, Read(0), Read(1), Write(0)))]


def clear(op: Op) -> list[Recipe]:
    """One recipe for -> total, set to 0."""
    return [plain(by_fours("update", "clear", op.writes[0].size, Write(0)))]


def sgd_update(op: Op) -> list[Recipe]:
    """One recipe for w dw rate objective (h) (clip) -> w (h), in place. Nothing is changed if the objective or the
    clipping factor is not finite."""
    a, n = op.attrs, op.reads[0].size
    dw, rate, objective = Read(1), Read(2), Read(3)
    clip = Read(len(op.reads) - 1) if a.clipped else rate  # without clipping it is not read
    kernel, targets = ("sgd_momentum", (Write(0), dw, Write(1))) if a.momentum else ("sgd", (Write(0), dw))
    numbers = np.float32(a.scale), np.float32(a.lr_mult), np.float32(a.decay), np.float32(a.momentum)
    lasso = np.int32(a.regularization == "L1")
    arguments = *targets, rate, objective, clip, np.int32(a.clipped), np.int64(n), *numbers, lasso
    return [plain(Launch("update", kernel, arguments, over(-(-n // 4))))]


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
    """Sums of the squares of all reads from `start` on: (launches, the piece that they write, the number of sums).

    In a 16-bit net some gradients are float32; a kernel squares those of one number format."""
    places = range(start, len(op.reads))
    sizes = {i: op.reads[i].size for i in places}
    blocks = {i: max(1, min(MOST, -(-n // PER_BLOCK))) for i, n in sizes.items()}
    steps = []
    partial = scratch.take(sum(blocks.values()) * 8)
    done = 0
    for kernel, float32 in (("squares_float", True), ("squares", False)):
        those = [i for i in places if (op.reads[i].dtype == "float32") == float32]
        for part in (those[k : k + AT_ONCE] for k in range(0, len(those), AT_ONCE)):
            lacking = AT_ONCE - len(part)
            arguments: list[Argument] = [*(Read(i) for i in part), *[Read(part[0])] * lacking]
            arguments += [np.int64(sizes[i]) for i in part] + [np.int64(0)] * lacking
            arguments += [np.int32(blocks[i]) for i in part] + [np.int32(0)] * lacking
            grid = sum(blocks[i] for i in part)
            arguments.append(Space(partial.offset + done * 8, grid * 8))
            steps.append(Launch("update", kernel, tuple(arguments), grid))
            done += grid
    return steps, partial, done


KINDS = {
    "gradient.accumulate": accumulate,
    "gradient.clear": clear,
    "gradient.clip": gradient_clip,
    "gradient.unscale": gradient_unscale,
    "sgd.update": sgd_update,
}
