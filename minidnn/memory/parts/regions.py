"""Where parts pay: the regions of a program in which ops have large tensors, and the programs in parts worth a look."""

from __future__ import annotations

from collections.abc import Iterator

from minidnn.memory.parts.kinds import operands
from minidnn.memory.parts.split import conflict, parted, refused
from minidnn.program import FORWARD, Op, Program, Region, nbytes

LEAST = 1 << 20  # bytes of the largest tensor of a part
MOST = 6000  # ops of a program in parts
LOWER = 0.9  # of the bytes of the op that needs most: more parts than these save too little


def largest(program: Program) -> int:
    """Bytes of the largest tensor that an op may take in parts; 0: there is none."""
    return max((found.largest for op in program.ops if (found := operands(op))), default=0)


def candidates(program: Program) -> Iterator[Program]:
    """The program with its large ops in 2, 4, 8 ... parts, as long as each lowers the bytes of the op that needs most.

    A part's largest tensor keeps LEAST bytes, since the starts of smaller ops and copies count."""
    size, count, need = largest(program), 2, _need(program)
    while size >= count * LEAST:
        made = parted(program, regions(program, size // count, count))
        if len(made.ops) > MOST:
            return
        if (now := _need(made)) < need * LOWER:
            need = now
            yield made
        count *= 2


def _need(program: Program) -> int:
    """Bytes of the op that needs most, without those that live from step to step."""
    lasting = frozenset(program.lasting)
    return max((nbytes(t for t in op.tensors if t not in lasting) for op in program.ops), default=0)


def regions(program: Program, most: int, count: int | None = None) -> tuple[Region, ...]:
    """Regions that leave ops no tensor of rows with more than `most` bytes, as far as ops may run in parts.

    Ops that follow each other are one region. An update waits until its region's end, and its gradient with it; at most
    `most` bytes wait so.

    count: how many parts all ops have, or the next larger number that divides their rows; None: as few as will do
    """
    found: list[Region] = []
    region: list[Op] = []
    behind: list[Op] = []
    parts = 0

    def close() -> None:
        if region:
            found.append(Region(tuple(op.name for op in region), parts))
        region.clear()
        behind.clear()

    for op in program.ops:
        wanted = _parts(program, op, most, count)
        if not wanted:
            if any(conflict(o, op) for o in (*region, *behind)):
                behind.append(op)
            if sum(t.nbytes for o in behind for t in o.reads if t not in program.lasting) > most:
                close()
            continue
        if region and (wanted != parts or _apart(region[-1], op) or any(conflict(o, op) for o in behind)):
            close()
        parts = wanted
        region.append(op)
    close()
    return tuple(found)


def _apart(one: Op, other: Op) -> bool:
    """Whether two ops are of different passes."""
    return (one.during in FORWARD) != (other.during in FORWARD)


def _parts(program: Program, op: Op, most: int, count: int | None) -> int:
    """How many parts the op shall have; 0: it runs as a whole."""
    found = operands(op)
    if found is None or found.largest <= most:
        return 0
    able = [n for n in range(2, found.rows + 1) if found.rows % n == 0]
    enough = [n for n in able if (found.largest <= most * n if count is None else n >= count)]
    wanted = next(iter(enough or able[-1:]), 0)
    return 0 if not wanted or refused(program, op, wanted) else wanted
