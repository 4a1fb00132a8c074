"""The sums of rows of one number (Embed's gradient, BatchReindex) some columns at a time: a row's columns do not depend
on each other. All rows have float32 copies of these columns, in which the sums are taken and rounded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from minidnn.backends.cpu.half.copies import Convert, Of, alike, block
from minidnn.backends.cpu.layout import flat
from minidnn.backends.cpu.recipe import Arrays, Call, Recipe, Scratch
from minidnn.formats import HALF
from minidnn.program import Op

KIND = "batch_reindex.backward"
STEP = 32  # a block has a multiple of so many columns: a cache's line of 16 bits


def recipes(of: Of, convert: Convert, op: Op) -> list[Recipe] | None:
    """The recipes for index dy -> dx in blocks of columns; None: the op is another, or one block has them all."""
    if op.kind != KIND or not {op.reads[1].dtype, op.writes[0].dtype} <= set(HALF):
        return None
    (index, dy), (dx,) = op.reads, op.writes
    chosen, rows = index.size, dx.shape[0]
    width, each = dx.size // rows, 4 * (chosen + rows)
    count = max(block(each * width) // each // STEP, 1) * STEP
    if count >= width:
        return None
    spans = [(first, min(first + count, width)) for first in range(0, width, count)]

    def part(n: int) -> list[Recipe]:
        tall, to = (replace(t, shape=(k, n), dtype="float32") for t, k in ((dy, chosen), (dx, rows)))
        return of(replace(op, reads=(replace(index, shape=(chosen,)), tall), writes=(to,), inplace=()))

    made = {n: part(n) for n in {last - first for first, last in spans}}
    return [_of_spans(convert, op, spans, each) for each in alike(made)]


def _of_spans(convert: Convert, op: Op, spans: Sequence[tuple[int, int]], made: Mapping[int, Recipe]) -> Recipe:
    """The recipe that computes spans of columns one after another. made: {a span's length: its recipe}"""
    scratch, most = Scratch(), max(made)
    chosen, rows = op.reads[0].size, op.writes[0].shape[0]
    rest = scratch.take(max(recipe.algorithm.workspace for recipe in made.values()))
    pieces = [scratch.take(4 * k * most) for k in (chosen, rows)]

    def bind(reads: Arrays, writes: Arrays, workspace: np.ndarray) -> list[Call]:
        index, dy, dx = flat(reads[0]), flat(reads[1]).reshape(chosen, -1), flat(writes[0]).reshape(rows, -1)
        calls: list[Call] = []
        for first, last in spans:
            n = last - first
            own = [p.array(workspace)[: k * n].reshape(k, n) for p, k in zip(pieces, (chosen, rows), strict=True)]
            calls += [convert(dy[:, first:last], own[0])]
            calls += made[n].bind([index, own[0]], [own[1]], rest.array(workspace, "uint8"))
            calls += [convert(own[1], dx[:, first:last])]
        return calls

    return scratch.recipe(made[most].algorithm.name, bind)
