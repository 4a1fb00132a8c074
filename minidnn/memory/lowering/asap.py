"""Copies back that begin as soon as their bytes are free.

The lowering does not know where bytes lie. So it lets a copy back begin at its point and not before, and wait for all
that has used any freed bytes. Once the buffers are placed, the former users of a copy's own bytes are known. It then
waits for these alone: the last op, and the copies out. Offsets stay, and so do all values. A copy back may begin
earlier, and none begins later.

So a step stalls less where ops are quicker than predicted, or copies slower. The papers say when their copies begin, so
only `best` asks for this. With a ring copies keep their points: its bytes are used in turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from minidnn.memory.lowering.lower import Lowering, group, issue, residencies_of
from minidnn.memory.lowering.ranges import Ranges
from minidnn.memory.schedule import Buffer, Compute, Residency, Schedule


class _Asap(Lowering):
    """The lowering, with the offset of every buffer."""

    def __init__(self, offset: Mapping[Buffer, int]) -> None:
        super().__init__()
        self.offset = offset
        self.used: dict[Buffer, int] = {}  # the last op that used the buffer
        self.freed: Ranges[list[int]] = Ranges()  # former users: that op, and the copies out

    def compute(self, x: Compute) -> int:
        index = super().compute(x)
        for s in (*x.reads, *x.writes, *((x.workspace,) if x.workspace else ())):
            self.used[s.buffer] = index
        return index

    def free(self, b: Buffer) -> None:
        users = [*((self.used[b],) if b in self.used else ()), *self.copies.get(b, ())]
        super().free(b)
        if users:
            self.freed.put(self.offset[b], self.offset[b] + b.nbytes, users)

    def former_users(self, s: Residency) -> Iterable[int | None]:
        b = s.buffer
        if b.residencies[0] is not s:  # a slot: its former member may have been written and not freed
            return super().former_users(s)
        lo = self.offset[b]
        result = self.freed.ranges[self.freed.over(lo, lo + b.nbytes)]
        return [index for _, _, users in result for index in users]


def asap(schedule: Schedule) -> Schedule:
    """The schedule with copies back that wait for the former users of their bytes alone. It has no ring."""
    assert schedule.staging is None
    residencies = residencies_of(schedule.program, schedule.plan)
    buffers = group(schedule.program, schedule.plan, residencies)
    offset = {b: schedule.offset[placed] for b, placed in zip(buffers, schedule.buffers, strict=True)}
    made = issue(schedule.program, schedule.plan, residencies, buffers, _Asap(offset))
    return replace(schedule, instructions=made.instructions, buffers=made.buffers, points=made.points, offset=offset)
