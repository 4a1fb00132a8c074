"""Moves of elements as they are, without copies: a float32 kernel moves pairs of 16 bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from minidnn.backends.cpu.half.copies import Convert, Of
from minidnn.backends.cpu.layout import flat
from minidnn.backends.cpu.recipe import Arrays, Call, Recipe, copied, plain
from minidnn.backends.layout import order
from minidnn.backends.moves import reshaped
from minidnn.formats import HALF
from minidnn.program import Op, Rows, Tensor

JOINS = ("concat.forward", "concat.backward")
SAME = ("identity.forward", "flatten.forward", "flatten.backward")
OF_ROWS = ("batch_reindex.forward",)


def recipes(of: Of, convert: Convert, op: Op) -> list[Recipe] | None:
    """The recipes that move pairs of elements, or all of them at once; None: the op does more, or parts a pair."""
    if op.kind in SAME and (moved := reshaped(op.reads[0].shape, op.writes[0].shape)) and moved.same:
        return [plain(lambda reads, writes, _: copied(reads[0], writes[0]), "copy")]
    if op.kind not in (*JOINS, *OF_ROWS) or len({t.dtype for t in op.tensors if t.dtype in HALF}) != 1:
        return None
    paired = _joined(op) if op.kind in JOINS else _by_rows(op)
    return None if paired is None else [_of_pairs(op, paired, recipe) for recipe in of(paired)]


def _joined(op: Op) -> Op | None:
    """The join with pairs for elements, along the second of two axes; None if it parts a pair."""
    axis = op.attrs.axis

    def cut(t: Tensor) -> tuple[int, int]:
        """How many runs of memory the tensor is in the join, and the elements of a run."""
        axes = order(len(t.shape))
        before = [t.shape[i] for i in axes[: axes.index(axis)]]
        return math.prod(before), t.size // math.prod(before)

    first = op.reads[0]
    one = cut(first)[1] // first.shape[axis]  # elements of a run at one place of the axis
    starts = [start * one for start in op.attrs.starts]
    if any(t.dtype not in HALF for t in op.tensors) or any(n % 2 for n in (*starts, *(cut(t)[1] for t in op.tensors))):
        return None
    return replace(_pairs(op, cut), attrs=Rows(tuple(start // 2 for start in starts), 1))


def _by_rows(op: Op) -> Op | None:
    """The move of rows with pairs for elements; None if rows have odd lengths."""

    def cut(t: Tensor) -> tuple[int, int]:
        return t.shape[0], t.size // t.shape[0]

    return None if any(cut(t)[1] % 2 for t in op.tensors if t.dtype in HALF) else _pairs(op, cut)


def _pairs(op: Op, cut: Callable[[Tensor], tuple[int, int]]) -> Op:
    """The op on 2-D tensors of float32, each of whose elements is a pair."""

    def of(t: Tensor) -> Tensor:
        rows, width = cut(t)
        return replace(t, shape=(rows, width // 2), dtype="float32") if t.dtype in HALF else t

    return replace(op, reads=tuple(map(of, op.reads)), writes=tuple(map(of, op.writes)), inplace=())


def _of_pairs(op: Op, paired: Op, recipe: Recipe) -> Recipe:
    def view(array: np.ndarray, was: Tensor, t: Tensor) -> np.ndarray:
        return array if was.dtype == t.dtype else flat(array).view(np.float32).reshape(t.shape)

    def bind(reads: Arrays, writes: Arrays, workspace: np.ndarray) -> list[Call]:
        return recipe.bind(
            [view(a, was, t) for a, was, t in zip(reads, op.reads, paired.reads, strict=True)],
            [view(a, was, t) for a, was, t in zip(writes, op.writes, paired.writes, strict=True)],
            workspace,
        )

    return Recipe(recipe.algorithm, bind)
