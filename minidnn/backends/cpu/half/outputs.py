"""Inner products that go over their outputs in blocks, each of which has float32 copies of its rows of the weights.

A block of y is some of its columns. dx is the sum of what each block adds to it. Whether there are blocks depends on
the weights alone, so that an op for some rows of the batch has the same ones. Not so for dw: where it has 16 bits, it
is never made in parts of the batch (memory/parts/kinds.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from minidnn.backends import layout
from minidnn.backends.cpu.half import copies
from minidnn.backends.cpu.half.copies import Convert, Of, alike, around, widened, with_tensors
from minidnn.backends.cpu.recipe import Arrays, Call, Recipe, Scratch
from minidnn.formats import HALF
from minidnn.memory.parts.split import ADD
from minidnn.program import Op, Tensor

# kind -> what its reads and its writes are: x, the weights w, the bias b, y, or their gradients
OPERANDS = {
    "inner_product.forward": ("xwb", "y"),
    "inner_product.forward_relu": ("xwb", "y"),
    "inner_product.backward_data": ("wy", "x"),
    "inner_product.backward_filter": ("xy", "w"),
}
STEP = 16  # a block has a multiple of so many outputs
LARGE = 1 << 20  # bytes of weights
MOST = 16 << 20  # bytes of a block's weights: each block adds to all of dx


def recipes(of: Of, convert: Convert, op: Op) -> list[Recipe] | None:
    """The recipes of an inner product in blocks; None: the op is another, or its weights are small."""
    if not pays(op):
        return None
    (x, *_), (w, *_), (y, *_) = (_operands(op, letter) for letter in "xwy")
    outputs, whole = w.shape[0], 4 * w.size
    count = max(min(max(copies.LEAST, whole // copies.PARTS), MOST) * outputs // whole // STEP, 1) * STEP
    mixed = widened(op, [x])
    sliced = {w: "w", y: "y"} | dict.fromkeys(_operands(op, "b"), "b")
    spans = [(first, min(first + count, outputs)) for first in range(0, outputs, count)]
    parts = {
        n: with_tensors(mixed, {t: _some(t, letter, n) for t, letter in sliced.items()})
        for n in {last - first for first, last in spans}
    }
    made = {n: of(part) for n, part in parts.items()}
    return [around(convert, op, mixed, _of_spans(of, convert, mixed, sliced, spans, each)) for each in alike(made)]


def pays(op: Op) -> bool:
    """Whether the op is an inner product with large weights."""
    if op.kind not in OPERANDS or not {t.dtype for t in op.tensors} <= set(HALF):
        return False
    (x, *_), (w, *_), (y, *_) = (_operands(op, letter) for letter in "xwy")
    few = op.kind == "inner_product.backward_filter" and w.size > x.size + y.size
    large = 4 * w.size > LARGE or few
    return large and w.shape[0] >= 2 * STEP and len({x, w, y}) == 3 and len(y.shape) != 4


def _operands(op: Op, letter: str) -> list[Tensor]:
    """The op's tensors that are such an operand; none without a bias."""
    reads, writes = OPERANDS[op.kind]
    return [
        t for t, is_ in (*zip(op.reads, reads, strict=False), *zip(op.writes, writes, strict=True)) if is_ == letter
    ]


def _some(t: Tensor, letter: str, n: int) -> Tensor:
    """As much of a tensor as n outputs have, as float32."""
    return replace(t, shape=(*t.shape[:-1], n) if letter == "y" else (n, *t.shape[1:]), dtype="float32")


def _of_spans(
    of: Of,
    convert: Convert,
    op: Op,
    sliced: dict[Tensor, str],
    spans: Sequence[tuple[int, int]],
    made: dict[int, Recipe],
) -> Recipe:
    """The recipe that computes spans of outputs one after another. made: {a span's length: its recipe}"""
    scratch, most = Scratch(), max(made)
    (written,) = op.writes
    summed = written not in sliced  # dx
    add = Op(ADD, ADD, op.layer, op.during, (written, replace(written, name="more")), (written,))
    added = of(add)[:1] if summed else []
    rest = scratch.take(max(recipe.algorithm.workspace for recipe in (*made.values(), *added)))
    pieces = {t: scratch.take(_some(t, letter, most).nbytes) for t, letter in sliced.items()}
    more = scratch.take(written.nbytes if summed else 0)

    def bind(reads: Arrays, writes: Arrays, workspace: np.ndarray) -> list[Call]:
        given = dict(zip((*op.reads, *op.writes), (*reads, *writes), strict=True))
        calls: list[Call] = []
        for first, last in spans:
            n, views, places = last - first, dict(given), {}
            for t, letter in sliced.items():
                views[t] = layout.view(pieces[t].array(workspace, "uint8"), _some(t, letter, n))
                rows = given[t].reshape(-1, t.shape[-1])[:, first:last] if letter == "y" else given[t][first:last]
                places[t] = rows, views[t].reshape(-1, n) if letter == "y" else views[t]
            if summed and first:
                views[written] = layout.view(more.array(workspace, "uint8"), written)
            calls += [convert(*places[t]) for t in op.reads if t in sliced]
            calls += made[n].bind(
                [views[t] for t in op.reads], [views[t] for t in op.writes], rest.array(workspace, "uint8")
            )
            calls += [convert(*reversed(places[t])) for t in op.writes if t in sliced]
            for add in added if first else ():
                calls += add.bind([given[written], views[written]], [given[written]], rest.array(workspace, "uint8"))
        return calls

    return scratch.recipe(made[most].algorithm.name, bind)
