"""Digests that ranks compare before they train together: of their communications, and of their whole plans.

A rank that waits for what no other sends waits for ever. Ranks that use other algorithms end with other bytes. The
proof looks at one rank alone, so ranks have to know that their schedules are one schedule.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from minidnn.memory.schedule import (
    Alloc,
    Arrangement,
    Buffer,
    Compute,
    Fetch,
    Free,
    Instruction,
    Offload,
    Prefetch,
    Residency,
    Schedule,
    StagingSlot,
    Stash,
    Wait,
)
from minidnn.program import Op, Program, Tensor


def digest(of: Schedule | Arrangement) -> str:
    """64 hexadecimal digits that two ranks have in common only if they run the same instructions, in the same order, by
    the same algorithms, at the same addresses. It depends on no rank's number, and on no process."""
    result = hashlib.sha256()
    for schedule in _schedules(of):
        for line in _lines(schedule):
            result.update(line.encode() + b"\n")
    return result.hexdigest()


def collectives(of: Schedule | Arrangement) -> tuple[str, ...]:
    """A line for each communication, in the order in which each program makes them: the program, the kind, and the
    bytes that go in and come out. All ranks have to make the same ones in the same order."""
    return tuple(
        f"{schedule.program.name}: {_op(x.op)}"
        for schedule in _schedules(of)
        for x in schedule.instructions
        if isinstance(x, Compute) and x.op.on_net
    )


def difference(by_rank: Sequence[Sequence[str]]) -> str | None:
    """How the communications of some ranks differ from those of rank 0, in words; None: they do not.

    by_rank: of each rank its `collectives`"""
    first = by_rank[0]
    for rank, other in enumerate(by_rank):
        for k in range(max(len(first), len(other))):
            mine, theirs = (some[k] if k < len(some) else "nothing more" for some in (first, other))
            if mine != theirs:
                return f"communication {k} of rank {rank} is not that of rank 0: {theirs}, not {mine}"
    return None


def _schedules(of: Schedule | Arrangement) -> list[Schedule]:
    return [of] if isinstance(of, Schedule) else list(of.schedules.values())


def _lines(s: Schedule) -> Iterator[str]:
    """Everything that a machine executes, line by line."""
    number = {b: k for k, b in enumerate(s.buffers)}
    yield (
        f"{s.program.name} {s.arena} {s.ring} {s.host_bytes} {s.host_shared} {s.store_bytes} {s.disk_bytes} {s.staging}"
    )
    yield from _ends(s.program)
    for b in s.buffers:
        yield f"{s.offset[b]} {b.nbytes} {b.persistent} {[_tensor(residency.tensor) for residency in b.residencies]}"
    for where in (s.host_offset, s.store_offset, s.disk_offset):
        yield str([(_tensor(t), at) for t, at in where.items()])
    for x in s.instructions:
        yield _instruction(x, number)


def _ends(p: Program) -> Iterator[str]:
    """Where the program's values are when it begins and ends."""
    for tensors in (p.inputs, p.persistent, p.outputs, p.host_resident):
        yield str([_tensor(t) for t in tensors])


def _instruction(x: Instruction, number: dict[Buffer, int]) -> str:
    def residency(s: Residency) -> str:
        return f"{s.tensor.name}@{number[s.buffer]}"

    def staging_slot(of: StagingSlot | None) -> str:
        return "" if of is None else f"{of.tensor.name}@{of.at}+{of.nbytes}"

    kind = type(x).__name__
    if isinstance(x, (Alloc, Free)):
        return f"{kind} {number[x.buffer]}"
    if isinstance(x, Wait):
        return f"{kind} {x.stream} {x.on}"
    if isinstance(x, Compute):
        places = [residency(s) for s in (*x.reads, *x.writes, *([] if x.workspace is None else [x.workspace]))]
        return f"{kind} {x.stream} {x.run} {_op(x.op)} {x.algorithm!r} {places}"
    if isinstance(x, (Offload, Prefetch)):
        return f"{kind} {x.stream} {residency(x.residency)} {staging_slot(x.staging_slot)}"
    assert isinstance(x, (Stash, Fetch))
    return f"{kind} {x.stream} {staging_slot(x.staging_slot)}"


def _op(op: Op) -> str:
    reads, writes = (" ".join(map(_tensor, some)) for some in (op.reads, op.writes))
    return f"{op.name}, {op.kind}, {op.attrs}, of {reads} to {writes}"


def _tensor(t: Tensor) -> str:
    return f"{t.name} {list(t.shape)} {t.dtype}"
