"""Rows of a tensor in memory: all elements along some axes that follow one another."""

from __future__ import annotations

import math
from dataclasses import dataclass

from minidnn.backends.layout import order
from minidnn.program import Op


@dataclass(frozen=True)
class Rows:
    """Element k of row (o, i) lies at (o * length + k) * inner + i, where 0 <= o < outer and 0 <= i < inner."""

    outer: int
    length: int
    inner: int

    @property
    def count(self) -> int:
        return self.outer * self.inner


def rows(shape: tuple[int, ...], first: int, last: int) -> Rows:
    """The rows along the axes first <= axis < last. Raises ValueError if memory has another axis between these."""
    axes = order(len(shape))
    places = sorted(axes.index(axis) for axis in range(first, last))
    if not places:
        return Rows(math.prod(shape), 1, 1)
    if places != list(range(places[0], places[-1] + 1)):
        raise ValueError(f"axes {first} to {last - 1} of {shape} are no rows in memory")
    lying = [shape[axis] for axis in axes]
    before, behind = lying[: places[0]], lying[places[-1] + 1 :]
    return Rows(math.prod(before), math.prod(shape[first:last]), math.prod(behind))


def groups(shape: tuple[int, ...], count: int) -> tuple[int, int, int, int, int]:
    """(samples, groups, channels of a group, places, run) of a tensor (N, C, ...) whose channels form so many groups.

    Of a sample, memory has `places` places of all channels, and of each channel `run` elements at a place."""
    n, c, *rest = shape
    inner = math.prod(rest)
    places, run = (inner, 1) if order(len(shape))[-1] == 1 else (1, inner)
    return n, count, c // count, places, run


@dataclass(frozen=True)
class ArgMaxResult:
    """ArgMax writes places of a row, or values, or both. Distances are in elements of its result."""

    place: bool
    value: bool
    along: int  # from one of the largest to the next
    apart: int  # from a place to its value


def places_of_largest(op: Op) -> tuple[Rows, ArgMaxResult]:
    """The rows of an op argmax.forward, and its results for each."""
    (x,), (y,), a = (t.shape for t in op.reads), (t.shape for t in op.writes), op.attrs
    if a.axis is not None:
        result = rows(x, a.axis, a.axis + 1)
        return result, ArgMaxResult(not a.out_max_val, a.out_max_val, result.inner, 0)
    if not a.out_max_val:
        return rows(x, 1, len(x)), ArgMaxResult(True, False, 1, 0)
    pairs = len(y) == 4  # (N, 2, top_k, 1) lies as N, top_k, 1, 2
    return rows(x, 1, len(x)), ArgMaxResult(True, True, 2 if pairs else 1, 1 if pairs else a.top_k)
