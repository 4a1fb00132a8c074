"""Ops on float32 copies of their tensors of 16 bits, and how many bytes of copies a block has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from minidnn.backends import layout
from minidnn.backends.cpu.recipe import Arrays, Call, Recipe, Scratch, plain
from minidnn.formats import HALF
from minidnn.program import Op, Tensor

# (source, target): a call that converts between arrays of one shape, each one run of memory or rows of one
Convert = Callable[[np.ndarray, np.ndarray], Call]
# The recipes of kernels that take an op's tensors as they are: of one with tensors of 16 bits often none.
Of = Callable[[Op], list[Recipe]]

PARTS = 8  # a block has such a part of an op's bytes, as float32
LEAST, MOST = 256 << 10, 4 << 20  # bytes of a block: kernels take their time to start, and caches are small
WIDER = 4  # a block has so many times the bytes that it converts, reads or adds up as a whole, such as filters
CASTS = ("cast.forward", "cast.backward")


def block(nbytes: int) -> int:
    """The bytes of a block of an op of so many."""
    return min(max(LEAST, nbytes // PARTS), MOST)


def halved(op: Op) -> bool:
    """Whether the op has tensors of 16 bits."""
    return any(t.dtype in HALF for t in op.tensors)


def pattern(op: Op) -> tuple[int, ...]:
    """Which of the op's operands are the same tensor, and which may have the same bytes: recipes depend on it."""
    places = {t: i for i, t in enumerate(op.tensors)}
    pairs = (t for pair in op.inplace for t in pair)
    return tuple(places[t] for t in (*op.reads, *op.writes, *pairs))


def at_once(of: Of, convert: Convert, op: Op) -> list[Recipe]:
    """The recipes of any op that take its tensors as they are, or else convert them as a whole."""
    if not halved(op):
        return of(op)
    if result := of(op):
        return result
    if op.kind in CASTS and len(op.reads) == 1 and op.reads[0].dtype != op.writes[0].dtype:
        return [plain(lambda reads, writes, _: [convert(reads[0], writes[0])], "convert")]
    wide = widened(op, op.tensors)
    return [around(convert, op, wide, recipe) for recipe in of(wide)]


def widened(op: Op, tensors: Sequence[Tensor]) -> Op:
    """The same op, with those of the tensors that have 16 bits as float32."""
    to = {t: replace(t, dtype="float32") for t in tensors if t.dtype in HALF}
    return with_tensors(op, to)


def with_tensors(op: Op, to: Mapping[Tensor, Tensor]) -> Op:
    """The same op on other tensors."""
    return replace(
        op,
        reads=tuple(to.get(t, t) for t in op.reads),
        writes=tuple(to.get(t, t) for t in op.writes),
        inplace=tuple((to.get(a, a), to.get(b, b)) for a, b in op.inplace),
    )


def alike(made: Mapping[int, Sequence[Recipe]]) -> list[dict[int, Recipe]]:
    """For each algorithm that every length of a block has: {a length: its recipe}, from {a length: its recipes}."""
    by_name = {n: {recipe.algorithm.name: recipe for recipe in each} for n, each in made.items()}
    names = [name for name in next(iter(by_name.values())) if all(name in each for each in by_name.values())]
    return [{n: each[name] for n, each in by_name.items()} for name in names]


def around(convert: Convert, op: Op, inner: Op, recipe: Recipe) -> Recipe:
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
