"""How much time copies take from ops at least, for the bound (rows.py).

In a plan an op of s seconds takes t = s + o * out + i * in, with its own drags o and i (Costs.dragged), and with the
seconds of copies `out` and `in` beside it, neither of which is above t. Nothing makes it slower than s / rest, where
rest = 1 - min(o + i + net, MOST_DRAG). Then for any drags O and I

    t - O * out - I * in >= s - (max(0, O - o) + max(0, I - i)) * t >= s * (1 - (max(0, O - o) + max(0, I - i)) / rest)

If no op counts for less than 0 on the right, the sum over ops, runs again and idle time (with O + I <= 1) is a row:
elapsed time, less O and I for each second of a copy, is at least the sum on the right. With the least drags of any op
each counts in full. With the largest ones an op that copies hardly slow down counts for less: copies hide beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minidnn.costs import MOST_DRAG, Choice
from minidnn.memory.joint.index import Index
from minidnn.program import Op

Way = tuple[float, float]  # of copies (out, in)


@dataclass(frozen=True)
class Dragged:
    """A row's coefficients.

    drag:    seconds that a second of a copy takes from elapsed time
    seconds: of each op those that it then counts for, with each of `index.choices`
    """

    drag: Way
    seconds: Sequence[Sequence[float]]


def dragged(index: Index) -> list[Dragged]:
    """The rows that hold for every plan: one by the least drags of any op, and one by the largest, if these differ."""
    every = [own for op in index.ops for own in _own_drags(index, op).values()]
    least, most = ((pick(o for o, _ in every), pick(i for _, i in every)) for pick in (min, max))
    result = [Dragged(least, [[c.seconds for c in some] for some in index.choices])]
    if most != least and (more := _by(index, _limited(most))) is not None:
        result.append(more)
    return result


def _limited(drag: Way) -> Way:
    """The drags of copies in both directions at once, which together take no more than MOST_DRAG."""
    return (drag[0] * part, drag[1] * part) if (part := MOST_DRAG / max(MOST_DRAG, sum(drag))) < 1 else drag


def _own_drags(index: Index, op: Op) -> dict[Choice, Way]:
    return {c: _limited(index.costs.dragged(op, c)) for c in index.costs.choices(op)}


def _by(index: Index, drag: Way) -> Dragged | None:
    """The row with these drags; None if an op counts for less than nothing."""
    seconds = []
    for op, front in zip(index.ops, index.choices, strict=True):
        counted = {}
        for c, own in _own_drags(index, op).items():
            rest = 1 - min(sum(own) + index.drag, MOST_DRAG)
            counted[c] = c.seconds * (1 - sum(max(0.0, of - mine) for of, mine in zip(drag, own, strict=True)) / rest)
        if min(counted.values()) < 0:
            return None
        # a plan may take a choice that another one beats
        seconds.append([min(counted[c] for c in counted if _is_beaten(c, best)) for best in front])
    return Dragged(drag, seconds)


def _is_beaten(c: Choice, by: Choice) -> bool:
    return c.seconds >= by.seconds and c.algorithm.workspace >= by.algorithm.workspace
