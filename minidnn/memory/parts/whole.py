"""An op that runs as a whole, computed part by part: the algorithm that gives it the bytes of the op in parts.

"winograd4/32" runs "winograd4" for 32 rows at a time, in their order. Rows of the result do not depend on others. The
gradient of a parameter is the ordered sum of the parts' own, which "winograd4" alone may sum in another order. So a
program in parts ends with the bytes of the program as a whole, whose ops take these algorithms. So does what is
merged. "native/32" of a BatchNorm's backward runs both its passes so (passes.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from minidnn.memory.parts.kinds import operands
from minidnn.memory.parts.passes import between
from minidnn.memory.schedule import aligned
from minidnn.program import Algorithm, Op

BY = "/"  # before the number of rows, in the name of an algorithm


def by_parts(part: Op, inner: Algorithm) -> Algorithm:
    """The algorithm of the whole op, of which `part` is a part that takes the algorithm `inner`. If it is a part of one
    of the op's passes, the workspace is that of this pass."""
    assert part.part is not None
    result, rows = operands(part.part.of), part.part.last - part.part.first
    assert result is not None
    own = *between(part.part.origin), *result.sums, *(result.merged * (result.rows // rows))
    return Algorithm(f"{inner.name}{BY}{rows}", aligned(inner.workspace) + sum(aligned(t.nbytes) for t in own))


def rows_of_parts(algorithm: Algorithm) -> int | None:
    """How many rows this algorithm takes at a time; None: all at once."""
    _, by, rows = algorithm.name.rpartition(BY)
    return int(rows) if by and rows.isdecimal() else None


def name_by_numbers(op: Op, algorithm: Algorithm) -> str:
    """The name of a whole op's algorithm. Its rows at a time are left out where no sum's order depends on them."""
    rows, result = rows_of_parts(algorithm), operands(op)
    ordered = result is None or result.late
    return algorithm.name if rows is None or ordered else algorithm.name.removesuffix(f"{BY}{rows}")


def as_whole(algorithm: Mapping[Op, Algorithm]) -> dict[Op, Algorithm]:
    """The algorithms of the program as a whole that give it the bytes of one in parts, which has these."""
    result: dict[Op, Algorithm] = {}
    for op, a in algorithm.items():
        if op.part is None:
            result[op] = a
        else:
            mine = by_parts(op, a)
            known = result.setdefault(op.part.origin, mine)
            if known.workspace < mine.workspace:
                result[op.part.origin] = mine
    return result
