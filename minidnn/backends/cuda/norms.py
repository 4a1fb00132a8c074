"""Sums of squares by blocks, clipping, the loss's scale, and the ratios of LARS and LAMB (kernels/norms.cu). One launch
takes many tensors, each in its own number format."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cuda.multi_tensor import batches, by_pieces, firsts, wide
from minidnn.backends.cuda.recipe import Launch, Read, Recipe, Scratch, Space, Table, Write, int32, plain
from minidnn.program import Op
from minidnn.ranks import shards

GRADIENTS = 160  # most tensors of a launch that squares them
TOTALS = 480  # most tensors of a launch that adds up their blocks


def gradient_squares(op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> the sums of their blocks' squares."""
    steps, done = [], 0
    for part in batches(range(len(op.reads)), GRADIENTS):
        of = [op.reads[i] for i in part]
        tensors, sums = (tuple(Read(i) for i in part),), Write(0, done * 8)
        steps.append(by_pieces("norms", "squares", GRADIENTS, of, tensors, (wide(of),), sums))
        done += sum(shards.blocks(t.size) for t in of)
    return [plain(*steps)]


def gradient_clip(op: Op) -> list[Recipe]:
    """One recipe for sums -> factor: the factor, at most 1, that scales the gradients' common L2 norm down to the
    threshold."""
    scratch = Scratch()
    steps, totals, count = _totals(op, 0, scratch)
    last = totals, Write(0), int32(count), np.float64(op.attrs.threshold)
    return [scratch.recipe("default", *steps, Launch("norms", "clip_factor", last, grid=1))]


def gradient_unscale(op: Op) -> list[Recipe]:
    """One recipe for state objective sums -> state factor. The factor undoes the loss scale and clips."""
    a, scratch = op.attrs, Scratch()
    steps, totals, count = _totals(op, 2, scratch)
    numbers = int32(count), np.float64(a.threshold), int32(a.period), np.float32(a.most), np.float32(a.least)
    last = totals, Read(1), Write(0), Write(1), *numbers
    return [scratch.recipe("default", *steps, Launch("norms", "unscale_factor", last, grid=1))]


def _totals(op: Op, sums: int, scratch: Scratch) -> tuple[list[Launch], Space, int]:
    """The sum of each tensor's squares, by the sums of blocks in that read: (launches, the piece that they write, how
    many tensors)."""
    blocks = op.attrs.blocks
    totals = scratch.take(len(blocks.counts) * 8)
    row, steps = int32(sum(blocks.counts)), []
    tensors = list(zip(firsts(blocks.counts), map(int32, blocks.counts), strict=True))
    for k, part in enumerate(batches(tensors, TOTALS)):
        into = Space(totals.offset + k * TOTALS * 8, len(part) * 8)
        arguments = Table(TOTALS, tuple(zip(*part, strict=True))), Read(sums), int32(blocks.ranks), row, into
        steps.append(Launch("norms", "tensor_squares", arguments, len(part)))
    return steps, totals, len(tensors)


def ratio(op: Op) -> list[Recipe]:
    """One recipe for (sums) objective (clip) -> ratio."""
    a, blocks = op.attrs.rule, op.attrs.blocks
    at = int(blocks is not None)
    ranks, each = (blocks.ranks, blocks.counts[0]) if blocks else (0, 0)
    given = Read(0), int32(ranks), int32(each)
    pointers = Read(at), Read(at + 1) if a.clipped else Read(at), Write(0)
    own = (np.float64(a.numbers[1]), np.float32(a.decay), np.float32(a.scale)) if op.family == "lars" else ()
    launch = Launch("norms", f"{op.family}_ratio", (*given, *pointers, *own, int32(a.clipped)), grid=1)
    return [plain(launch)]


KINDS = {
    "gradient.squares": gradient_squares,
    "gradient.clip": gradient_clip,
    "gradient.unscale": gradient_unscale,
    "lars.ratio": ratio,
    "lamb.ratio": ratio,
}
