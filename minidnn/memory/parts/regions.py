"""Where parts pay: the regions of a program in which ops have large tensors, and the programs in parts worth a look."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

from minidnn.memory.parts.kinds import operands
from minidnn.memory.parts.passes import passes
from minidnn.memory.parts.split import Touched, parted, refused
from minidnn.program import FORWARD, Op, Program, SplitRegion, Tensor, nbytes

LEAST = 1 << 20  # bytes of the largest tensor of a part
MOST = 6000  # ops of a program in parts
MORE = 4  # times smaller tensors suffice for an op to run in parts, where more ops do
LOWER = 0.95  # of the bytes that a step needs: parts that save less are not leaner


def largest(program: Program) -> int:
    """Bytes of the largest tensor that an op may take in parts; 0: there is none."""
    ones = (one for op in program.ops for one in (passes(op) or (op,)))
    return max((result.largest for one in ones if (result := operands(one))), default=0)


def in_equal_parts(program: Program, count: int) -> tuple[SplitRegion, ...]:
    """The regions of ops that have a tensor larger than a `count`-th of the largest one, each in so many parts."""
    return regions(program, largest(program) // count, count)


def candidates(program: Program) -> Iterator[Program]:
    """The program with its large ops in 2, 4, 8 ... parts: each needs fewer bytes for tensors and workspaces.

    A part's largest tensor keeps LEAST bytes, since the starts of smaller ops and copies count. In the same number of
    parts there are two candidates: in one, more of the ops run in parts."""
    size, count, seen = largest(program), 2, set[tuple[SplitRegion, ...]]()
    while size >= count * LEAST:
        for result in in_equal_parts(program, count), regions(program, size // (MORE * count), count):
            if result and result not in seen and sum(len(region.ops) * region.count for region in result) <= MOST:
                yield parted(program, result)
            seen.add(result)
        count *= 2


def leaner(program: Program) -> Iterator[Program]:
    """The candidates of which each lowers the bytes that a step needs at least, whatever algorithms ops have."""
    need = needed(program)
    for made in candidates(program):
        if (now := needed(made)) < need * LOWER:
            need = now
            yield made


def needed(program: Program) -> int:
    """Bytes that any plan takes, workspaces apart: the operands of the op that needs most, with all that must live on
    the device from step to step. Bytes are shared where ops permit it."""
    pinned = frozenset(program.persistent) - program.movable
    return nbytes(pinned) + max((_own(op, pinned) for op in program.ops), default=0)


def _own(op: Op, pinned: Collection[Tensor]) -> int:
    shared: dict[Tensor, int] = {}
    for read, written in op.inplace:
        shared[written] = max(shared.get(written, 0), min(read.nbytes, written.nbytes))
    return nbytes({t for t in op.tensors if t not in pinned}) - sum(shared.values())


def regions(program: Program, most: int, count: int | None = None) -> tuple[SplitRegion, ...]:
    """Regions that leave ops no tensor of rows with more than `most` bytes, as far as ops may run in parts.

    Ops that follow each other are one region. An update waits until its region's end, and its gradient with it; at most
    `most` bytes wait so. What needs a sum over all rows begins another region than what writes it.

    count: how many parts all ops have, or the next larger number below twice as many that divides their rows; an op
           without one runs as a whole. None: as few as will do
    """
    result: list[SplitRegion] = []
    region: list[Op] = []
    inside, behind, parts, waiting = Touched(), Touched(), 0, 0
    late: set[Tensor] = set()
    made: set[Tensor] = set()  # what the region writes
    for op, wanted in chain.from_iterable(_wanted(program, op, most, count) for op in program.ops):
        if not wanted and (inside.before(op) or behind.before(op)):
            behind.add(op)
            waiting += nbytes(t for t in op.reads if t not in program.lasting)
        apart = region and (region[0].during in FORWARD) != (op.during in FORWARD)
        uses = operands(op) if wanted else None
        early = wanted != parts or apart or behind.before(op) or not late.isdisjoint(op.reads)
        early = early or (uses is not None and not made.isdisjoint(uses.whole))
        if waiting > most or (wanted and early):
            if region:
                result.append(SplitRegion(tuple(op.name for op in region), parts))
            region, inside, behind, waiting, late, made = [], Touched(), Touched(), 0, set(), set()
        if uses is not None:
            parts = wanted
            region.append(op)
            inside.add(op)
            late.update(uses.late)
            made.update(op.writes)
    return (*result, SplitRegion(tuple(op.name for op in region), parts)) if region else tuple(result)


def _wanted(program: Program, op: Op, most: int, count: int | None) -> list[tuple[Op, int]]:
    """How many parts the op shall have, or each of its passes: all as many; 0: it runs as a whole."""
    each = [(one, _parts(program, one, most, count)) for one in passes(op)]
    if each and all(wanted == each[0][1] > 0 for _, wanted in each):
        return each
    return [(op, _parts(program, op, most, count))]


def _parts(program: Program, op: Op, most: int, count: int | None) -> int:
    """How many parts the op shall have; 0: it runs as a whole."""
    result = operands(op)
    if result is None or result.largest <= most:
        return 0
    if count is None:
        few = (
            n
            for n in range(2, result.rows // result.step + 1)
            if result.divides(n) and (result.largest <= most * n or n == result.rows // result.step)
        )
    else:
        few = (n for n in range(count, min(2 * count, result.rows + 1)) if result.divides(n))
    wanted = next(few, 0)
    return 0 if not wanted or refused(program, op, wanted) else wanted
