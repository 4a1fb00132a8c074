"""Ops on tensors of 16 bits: the recipes of float32, on copies in the workspace.

What an op reads is widened there, and what it writes is rounded once, from there into its place. So arithmetic is that
of float32, and a recipe keeps its name. A read and a write that may have the same bytes share a copy.

Copies of whole tensors would take back what 16 bits save. So most ops go over their tensors in blocks, of which a cache
holds the copies:

- *by elements*, where each element of a result depends on the same element of the operands: ReLU, sums, updates
- *by rows*, as ops in parts of the batch do (memory/parts/): convolutions, inner products, BatchNorm in two passes. A
  parameter's gradient is added up over the blocks in float32, and rounded once

How large a block is follows from the op's shapes alone. All other ops are converted as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import numpy as np

from minidnn.backends import layout, parts
from minidnn.backends.choice import choose
from minidnn.backends.cpu.layout import flat
from minidnn.backends.cpu.recipe import Arrays, Call, Recipe, Scratch, chained, plain
from minidnn.formats import HALF
from minidnn.memory.execution.device import Device
from minidnn.memory.parts.kinds import operands
from minidnn.memory.parts.passes import passes
from minidnn.memory.parts.split import part_of
from minidnn.memory.parts.whole import BY, by_parts
from minidnn.optimizers import RULES
from minidnn.program import Algorithm, Op, Tensor
from minidnn.ranks import shards

Convert = Callable[[np.ndarray, np.ndarray], Call]  # (source, target): a call that converts; both are runs of memory
Of = Callable[[Op], list[Recipe]]  # the recipes of an op

PARTS = 8  # a block has such a part of an op's bytes, as float32
LEAST, MOST = 256 << 10, 4 << 20  # bytes of a block: kernels take their time to start, and caches are small
PIECE = 1 << 12  # a block by elements is a multiple of so many
NUMBERS = 2  # most elements of a tensor that a block reads as a whole: a rate, a scale
WIDER = 4  # a block has so many times the bytes that it converts, reads or adds up as a whole, such as filters
CASTS = ("cast.forward", "cast.backward")
SQUARES = "gradient.squares"
# Each element of a write depends on the same elements of the reads, and on single numbers.
BY_ELEMENTS = frozenset({
    "relu.forward", "relu.backward", "unary.forward", "unary.backward", "eltwise.forward", "eltwise.forward_relu",
    "eltwise.backward", "gradient.add", "gradient.fill", "gradient.sum", "gradient.sum_relu", "gradient.accumulate",
    "identity.forward", "cast.backward", "sgd.update", *(f"{rule}.update" for rule in RULES),
})  # fmt: skip


def halved(op: Op) -> bool:
    """Whether the op has tensors of 16 bits."""
    return any(t.dtype in HALF for t in op.tensors)


def pattern(op: Op) -> tuple[int, ...]:
    """Which of the op's operands are the same tensor, and which may have the same bytes: recipes depend on it."""
    places = {t: i for i, t in enumerate(op.tensors)}
    pairs = (t for pair in op.inplace for t in pair)
    return tuple(places[t] for t in (*op.reads, *op.writes, *pairs))


def recipes(of: Of, convert: Convert, op: Op) -> list[Recipe]:
    """The recipes of an op with tensors of 16 bits. `of`: those of an op that has none"""
    if op.kind == SQUARES:
        return _squares(of, convert, op)
    for blocks in (_by_elements, _by_rows):
        if (result := blocks(of, convert, op)) is not None:
            return result
    return _at_once(of, convert, op)


def _at_once(of: Of, convert: Convert, op: Op) -> list[Recipe]:
    """The recipes of any op that convert whole tensors."""
    if not halved(op):
        return of(op)
    if op.kind in CASTS and len(op.reads) == 1 and op.reads[0].dtype != op.writes[0].dtype:
        return [plain(lambda reads, writes, _: [convert(reads[0], writes[0])], "convert")]
    wide = _widened(op, op.tensors)
    return [_around(convert, op, wide, recipe) for recipe in of(wide)]


def _block(nbytes: int) -> int:
    """The bytes of a block of an op of so many."""
    return min(max(LEAST, nbytes // PARTS), MOST)


def _widened(op: Op, tensors: Sequence[Tensor]) -> Op:
    """The same op, with those of the tensors that have 16 bits as float32."""
    to = {t: replace(t, dtype="float32") for t in tensors if t.dtype in HALF}
    return _with(op, to)


def _with(op: Op, to: Mapping[Tensor, Tensor]) -> Op:
    """The same op on other tensors."""
    return replace(
        op,
        reads=tuple(to.get(t, t) for t in op.reads),
        writes=tuple(to.get(t, t) for t in op.writes),
        inplace=tuple((to.get(a, a), to.get(b, b)) for a, b in op.inplace),
    )


def _around(convert: Convert, op: Op, inner: Op, recipe: Recipe) -> Recipe:
    """The recipe of `op` by one of `inner`, which is the same op with float32 in the place of some tensors' 16 bits."""
    scratch = Scratch()
    rest = scratch.take(recipe.algorithm.workspace)
    wide = {
        t: w for t, w in zip((*op.reads, *op.writes), (*inner.reads, *inner.writes), strict=True) if t.dtype != w.dtype
    }
    of_read = {a: b for a, b in op.inplace if a in wide and b in wide}
    shared = {b: a for a, b in of_read.items()}  # each write with one read, and each read with one write
    pieces = {t: scratch.take(w.nbytes) for t, w in wide.items() if t not in shared}
    pieces |= {b: pieces[a] for b, a in shared.items()}

    def bind(reads: Arrays, writes: Arrays, workspace: np.ndarray) -> list[Call]:
        copies = {t: layout.view(pieces[t].array(workspace, "uint8"), w) for t, w in wide.items()}
        given = dict(zip((*op.reads, *op.writes), (*reads, *writes), strict=True))
        before = [convert(given[t], copies[t]) for t in dict.fromkeys(op.reads) if t in copies]
        after = [convert(copies[t], given[t]) for t in op.writes if t in copies]
        calls = recipe.bind(
            [copies.get(t, given[t]) for t in op.reads], [copies.get(t, given[t]) for t in op.writes],
            rest.array(workspace, "uint8"),
        )  # fmt: skip
        return [*before, *calls, *after]

    return scratch.recipe(recipe.algorithm.name, bind)


# ---- by elements


def _by_elements(of: Of, convert: Convert, op: Op) -> list[Recipe] | None:
    """The recipes that go over the op's elements in blocks; None: one block has them all, or they depend on others."""
    size = max(t.size for t in op.tensors)
    if op.kind not in BY_ELEMENTS or {t.size for t in op.tensors if t.size > NUMBERS} != {size}:
        return None
    each = sum(4 for t in op.tensors if t.size == size)
    count = -(-_block(each * size) // each // PIECE) * PIECE
    if count >= size:
        return None
    spans = [(first, min(first + count, size)) for first in range(0, size, count)]
    made = {
        n: _at_once(of, convert, _with(op, {t: replace(t, shape=(n,)) for t in op.tensors if t.size == size}))
        for n in {last - first for first, last in spans}
    }
    return [_of_spans(spans, {n: each[i] for n, each in made.items()}, size) for i in range(len(made[count]))]


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


def _squares(of: Of, convert: Convert, op: Op) -> list[Recipe]:
    """The recipe for x1 .. xn -> the sums of their blocks' squares (ranks/shards.py), some blocks at a time."""
    most = _block(4 * max(t.size for t in op.reads)) // (4 * shards.BLOCK) * shards.BLOCK
    spans = [  # of each tensor: from where, how many elements, where their sums begin
        (i, first, min(most, t.size - first), start + first // shards.BLOCK)
        for i, (t, start) in enumerate(zip(op.reads, _starts(op.reads), strict=False))
        for first in range(0, t.size, most)
    ]

    def part(i: int, size: int) -> Recipe:
        x, sums = replace(op.reads[i], shape=(size,)), replace(op.writes[0], shape=(shards.blocks(size),))
        return _at_once(of, convert, replace(op, reads=(x,), writes=(sums,), inplace=()))[0]

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


# ---- by rows


class _Blocks(Device):
    """A device for the ops of a block (backends/parts.py)."""

    def __init__(self, of: Of, convert: Convert) -> None:
        self._of, self._convert = of, convert

    def _recipes(self, op: Op) -> list[Recipe]:
        return _at_once(self._of, self._convert, op)

    def algorithms(self, op: Op) -> tuple[Algorithm, ...]:
        return tuple(recipe.algorithm for recipe in self._recipes(op))

    def array(self, buffer: np.ndarray, tensor: Tensor) -> np.ndarray:
        return layout.view(buffer, tensor)

    def prepare(self, op: Op, algorithm: Algorithm, views: Mapping[Tensor, np.ndarray], workspace: np.ndarray) -> Call:
        recipe = choose(self._recipes(op), op, algorithm, workspace.nbytes, "a block")
        return chained(recipe.bind([views[t] for t in op.reads], [views[t] for t in op.writes], workspace))


def _by_rows(of: Of, convert: Convert, op: Op) -> list[Recipe] | None:
    """The recipes that go over the op's rows in blocks; None: one block has them all, or the op needs all at once."""
    wide = _widened(op, op.tensors)
    uses = [use for one in passes(wide) or (wide,) if (use := operands(one))]
    if len(uses) < len(passes(wide) or (wide,)):
        return None
    with_rows = {t for use in uses for t in use.tensors}
    nbytes = sum(t.nbytes for t in wide.tensors if t in with_rows)
    others = sum(t.nbytes for t in wide.tensors if t not in with_rows)
    count = uses[0].rows
    rows = _divisor(count, max(_block(nbytes), WIDER * others) * count // nbytes)
    if rows == count:
        return None
    mixed, device = _widened(op, [t for t in op.tensors if t not in with_rows]), _Blocks(of, convert)
    return [_around(convert, op, mixed, recipe) for recipe in _of_parts(device, mixed, rows)]


def _divisor(n: int, wanted: int) -> int:
    """The largest divisor of n that is not above `wanted`; if that is far below, the smallest above."""
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    below = max((d for d in divisors if d <= wanted), default=0)
    return below if 4 * below > min(wanted, n) else next(d for d in divisors if d > wanted)


def _of_parts(device: Device, op: Op, rows: int) -> Iterator[Recipe]:
    """The recipes of an op that compute so many rows at a time. What they do not write by rows is float32."""
    blocks = [part_of(one, (0, rows), op if one is not op else None) for one in passes(op) or (op,)]
    offered = [{a.name: by_parts(one, a) for a in device.algorithms(one)} for one in blocks]
    for name in offered[0]:
        if all(name in each for each in offered):
            most = max(each[name].workspace for each in offered)
            yield Recipe(Algorithm(name, most), partial(_bind, device, op, Algorithm(f"{name}{BY}{rows}", most), rows))


def _bind(
    device: Device, op: Op, algorithm: Algorithm, rows: int, reads: Arrays, writes: Arrays, workspace: np.ndarray
) -> list[Call]:
    views = dict(zip((*op.reads, *op.writes), (*reads, *writes), strict=True))
    return [parts.prepared(device, op, algorithm, views, workspace, rows)]
