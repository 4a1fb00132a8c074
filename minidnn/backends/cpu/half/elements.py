"""Ops that go over their elements in blocks, each of which has float32 copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from minidnn.backends.cpu.half.copies import Convert, Of, alike, at_once, block, with_tensors
from minidnn.backends.cpu.layout import flat
from minidnn.backends.cpu.recipe import Arrays, Call, Recipe
from minidnn.optimizers import RULES
from minidnn.program import Algorithm, Op, Tensor
from minidnn.ranks import shards

PIECE = 1 << 12  # a block is a multiple of so many elements
NUMBERS = 2  # most elements of a tensor that a block reads as a whole: a rate, a scale
SQUARES = "gradient.squares"
# Each element of a write depends on the same elements of the reads, and on single numbers.
BY_ELEMENTS = frozenset({
    "relu.forward", "relu.backward", "unary.forward", "unary.backward", "eltwise.forward", "eltwise.forward_relu",
    "eltwise.backward", "gradient.add", "gradient.fill", "gradient.sum", "gradient.sum_relu", "gradient.accumulate",
    "cast.backward", "sgd.update", *(f"{rule}.update" for rule in RULES),
})  # fmt: skip


def recipes(of: Of, convert: Convert, op: Op) -> list[Recipe] | None:
    """The recipes that go over the op's elements in blocks; None: one block has them all, or they depend on others."""
    size = max(t.size for t in op.tensors)
    if op.kind not in BY_ELEMENTS or {t.size for t in op.tensors if t.size > NUMBERS} != {size}:
        return None
    each = sum(4 for t in op.tensors if t.size == size)
    count = -(-block(each * size) // each // PIECE) * PIECE
    if count >= size:
        return None
    spans = [(first, min(first + count, size)) for first in range(0, size, count)]
    made = {
        n: at_once(of, convert, with_tensors(op, {t: replace(t, shape=(n,)) for t in op.tensors if t.size == size}))
        for n in {last - first for first, last in spans}
    }
    return [_of_spans(spans, each, size) for each in alike(made)]


def _of_spans(spans: Sequence[tuple[int, int]], made: Mapping[int, Recipe], size: int) -> Recipe:
    """The recipe that computes spans of elements one after another. made: {a span's length: its recipe}"""
    name, nbytes = next(iter(made.values())).algorithm.name, max(r.algorithm.workspace for r in made.values())

    def bind(reads: Arrays, writes: Arrays, workspace: np.ndarray) -> list[Call]:
        def some(arrays: Arrays, first: int, last: int) -> list[np.ndarray]:
            return [flat(t)[first:last] if t.size == size else t for t in arrays]

        return [
            call
            for first, last in spans
            for call in made[last - first].bind(some(reads, first, last), some(writes, first, last), workspace)
        ]

    return Recipe(Algorithm(name, nbytes), bind)


def squares(of: Of, convert: Convert, op: Op) -> list[Recipe] | None:
    """The recipe for x1 .. xn -> the sums of their blocks' squares (ranks/shards.py), some blocks at a time; None: the
    op is another."""
    if op.kind != SQUARES:
        return None
    most = block(4 * max(t.size for t in op.reads)) // (4 * shards.BLOCK) * shards.BLOCK
    spans = [  # of each tensor: from where, how many elements, where their sums begin
        (i, first, min(most, t.size - first), start + first // shards.BLOCK)
        for i, (t, start) in enumerate(zip(op.reads, _starts(op.reads), strict=False))
        for first in range(0, t.size, most)
    ]

    def part(i: int, size: int) -> Recipe:
        x, sums = replace(op.reads[i], shape=(size,)), replace(op.writes[0], shape=(shards.blocks(size),))
        return at_once(of, convert, replace(op, reads=(x,), writes=(sums,), inplace=()))[0]

    made = {(op.reads[i].dtype, size): part(i, size) for i, _, size, _ in spans}

    def bind(reads: Arrays, writes: Arrays, workspace: np.ndarray) -> list[Call]:
        xs, sums = [flat(x) for x in reads], flat(writes[0])
        return [
            call
            for i, first, size, at in spans
            for call in made[op.reads[i].dtype, size].bind(
                [xs[i][first : first + size]], [sums[at : at + shards.blocks(size)]], workspace
            )
        ]

    names = [r.algorithm for r in made.values()]
    return [Recipe(Algorithm(names[0].name, max(a.workspace for a in names)), bind)]


def _starts(tensors: Sequence[Tensor]) -> Iterator[int]:
    """Where the sums of each tensor's blocks begin."""
    return accumulate((shards.blocks(t.size) for t in tensors), initial=0)
