"""Equal blocks of a net: the gaps, and the ops, that stand in the same place of each.

Blocks are not sought. Two ops are alike if they, and the ops beside them, have equal kinds, bytes and costs. Two gaps
are alike if their tensors have equal bytes, and the ops that begin and end them are alike and use them alike. So this
holds for layers of a transformer, stages of a ResNet and steps of a recurrence, wherever they begin.

Nothing depends on it being true: it says which decisions are worth changing together, and the evaluator sees what that
brings.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence

from minidnn.costs import Choice
from minidnn.memory.joint.evaluator import Evaluator
from minidnn.memory.joint.index import Gap, Index
from minidnn.memory.plan import Point
from minidnn.program import Op

BESIDE = 1  # ops on each side that must be alike, too
ALL = 0.3  # share of draws that take all blocks
FURTHER = 4  # blocks that other draws take besides, on average


class Alike:
    """Rows of keys that are alike, each in the program's order."""

    def __init__(self, keys: Iterable[int], nature: Callable[[int], Hashable]) -> None:
        rows: dict[Hashable, list[int]] = defaultdict(list)
        for key in keys:
            rows[nature(key)].append(key)
        self._place = {key: (row, at) for row in rows.values() for at, key in enumerate(row)}

    def row(self, key: int) -> list[int]:
        """All keys that are like this one, and itself."""
        return self._place[key][0]

    def some(self, r: random.Random, key: int) -> list[int]:
        """This key with all that are like it, or with the next ones before it or behind it."""
        row, at = self._place[key]
        if r.random() < ALL:
            return row
        count = int(r.expovariate(1 / FURTHER))
        return row[max(0, at - count) : at + 1] if r.random() < 0.5 else row[at : at + count + 1]


def alike_ops(index: Index, ops: Iterable[Point]) -> Alike:
    """Which of these ops are alike."""
    return Alike(ops, _around(index).__getitem__)


def alike_gaps(evaluator: Evaluator) -> Alike:
    """Which gaps are alike. Each decision that one of them may have is open to all that are like it."""
    gaps, ops, around = evaluator.gaps, evaluator.index.ops, _around(evaluator.index)

    def use(gap: Gap, p: Point) -> Hashable:
        return (around[p], ops[p].tensors.index(gap.tensor)) if 0 <= p < len(ops) else p < 0

    def nature(key: int) -> Hashable:
        gap, may = gaps[key], (bool(evaluator.may_offload[key]), bool(evaluator.may_recompute[key]))
        return may, gap.tensor.nbytes, use(gap, gap.last), use(gap, gap.use)

    return Alike(sorted(range(len(gaps)), key=lambda key: (gaps[key].last, key)), nature)


def _around(index: Index) -> list[tuple[int, ...]]:
    """For each op a number of its nature, with those of the ops beside it."""
    numbers: dict[Hashable, int] = {}
    natures = [_nature(op, choices) for op, choices in zip(index.ops, index.choices, strict=True)]
    each = [numbers.setdefault(nature, len(numbers)) for nature in natures]
    return [tuple(each[max(0, p - BESIDE) : p + BESIDE + 1]) for p in range(len(each))]


def _nature(op: Op, choices: Sequence[Choice]) -> Hashable:
    """What an op has in common with those like it: its kind, bytes and costs."""
    costs = tuple((c.algorithm.workspace, c.seconds) for c in choices)
    return op.kind, op.during, tuple(t.nbytes for t in op.reads), tuple(t.nbytes for t in op.writes), costs
