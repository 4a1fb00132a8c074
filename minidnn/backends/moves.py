"""Moves of elements on the fast backends, as loops over the target in the order of memory.

Crop, its backward, Permute and Tile write each element of their target once, from one element of their source or with
0. So one kernel does all of them: it goes through the target, and knows for each axis how far to go in the source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from operator import mul
from typing import Any

from minidnn.backends.layout import order, strides
from minidnn.program import Op

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    """A loop over `size` places of the target. From one to the next it goes `step` elements on in the source. Only the
    places from `low` up to `high` are in the source; the others are 0."""

    size: int
    step: int
    low: int
    high: int

    @property
    def whole(self) -> bool:
        return (self.low, self.high) == (0, self.size)


@dataclass(frozen=True)
class Move:
    """Loops over the target, the outermost first: their elements follow each other in memory. `start`: the element of
    the source at the target's first place, were it there; below 0 if the source begins later."""

    loops: tuple[Loop, ...]
    start: int = 0

    @property
    def same(self) -> bool:
        """Whether source and target are the same bytes."""
        return len(self.loops) == 1 and self.loops[0].step == 1 and self.loops[0].whole and self.start == 0

    @property
    def turned(self) -> int | None:
        """The loop along which the source's elements follow each other, if it is not the innermost, so that the move
        is a transposition; None if there is none."""
        if self.loops[-1].step == 1 or not all(loop.whole for loop in self.loops):
            return None
        return next((i for i, loop in enumerate(self.loops) if loop.step == 1), None)


def move(op: Op) -> Move:
    """The move of an op of Crop, Permute or Tile."""
    return _OF[op.kind](op.attrs, op.reads[0].shape, op.writes[0].shape)


def reshaped(x: Shape, y: Shape) -> Move | None:
    """The move of the same elements, in logical order, to another shape. None between images if no loops go through
    both, as from H = 2, W = 3 to H = 3, W = 2."""
    x, y = (shape if len(shape) == 4 else (math.prod(shape),) for shape in (x, y))  # of others memory knows no axes
    cuts = sorted({1, *accumulate(x, mul), *accumulate(y, mul)})
    if any(b % a for a, b in pairwise(cuts)):
        return None
    parts = [b // a for a, b in pairwise(cuts)]
    steps = [0] * len(parts)
    for step, numbers in zip(strides(x), _factors(x, parts), strict=True):
        for i in reversed(numbers):
            steps[i], step = step, step * parts[i]
    of_y = _factors(y, parts)
    return Move(_joined([Loop(parts[i], steps[i], 0, parts[i]) for axis in order(len(y)) for i in of_y[axis]]))


def _factors(shape: Shape, parts: Sequence[int]) -> list[range]:
    """The numbers of the parts whose product each axis is."""
    result, at = [], 0
    for size in shape:
        first = at
        while size > 1:
            size //= parts[at]
            at += 1
        result.append(range(first, at))
    return result


def gaps(a: Any, lengths: Sequence[int], whole: Shape) -> list[tuple[int, int]]:
    """(start, length) of what no part covers along the axis of a join: parts of these lengths begin at a.starts."""
    ends = [0, *(start + length for start, length in zip(a.starts, lengths, strict=True))]
    return [(end, start - end) for end, start in zip(ends, (*a.starts, whole[a.axis]), strict=True) if start > end]


def _crop(a: Any, x: Shape, y: Shape) -> Move:
    step = strides(x)
    loops = [Loop(y[i], step[i], 0, y[i]) for i in order(len(y))]
    return Move(_joined(loops), sum(first * n for first, n in zip(a.start, step, strict=True)))


def _pad(a: Any, dy: Shape, dx: Shape) -> Move:
    step = strides(dy)
    loops = [Loop(dx[i], step[i], a.start[i], a.start[i] + dy[i]) for i in order(len(dx))]
    return Move(_joined(loops), -sum(first * n for first, n in zip(a.start, step, strict=True)))


def _permute(a: Any, x: Shape, y: Shape) -> Move:
    step = strides(x)
    return Move(_joined([Loop(y[i], step[a.order[i]], 0, y[i]) for i in order(len(y))]))


def _tile(a: Any, x: Shape, y: Shape) -> Move:
    step, loops = strides(x), []
    for i in order(len(y)):
        loops += [Loop(a.tiles, 0, 0, a.tiles)] if i == a.axis else []
        loops.append(Loop(x[i], step[i], 0, x[i]))
    return Move(_joined(loops))


def _joined(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    """The loops without those of one place, and with each two made one that go through the source like one."""
    result: list[Loop] = []
    for loop in loops:
        if loop.size == 1:
            continue
        if result and loop.whole and result[-1].step == loop.size * loop.step:
            outer = result.pop()
            n = loop.size
            loop = replace(loop, size=outer.size * n, low=outer.low * n, high=outer.high * n)
        result.append(loop)
    return tuple(result) or (Loop(1, 1, 0, 1),)


_OF: dict[str, Callable[[Any, Shape, Shape], Move]] = {
    "crop.forward": _crop,
    "crop.backward": _pad,
    "permute.forward": _permute,
    "permute.backward": _permute,
    "tile.forward": _tile,
}
