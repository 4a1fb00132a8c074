"""Where a schedule does something, by name."""

from __future__ import annotations

from minidnn.memory.schedule import Compute, Schedule, Wait


def positions(schedule: Schedule, kind: type, name: str) -> list[int]:
    """Indices of the instructions of that kind: Compute by the name of its op, others by the name of their tensor."""
    return [
        i
        for i, x in enumerate(schedule.instructions)
        if isinstance(x, kind)
        and (x.op.name if isinstance(x, Compute) else x.residency.tensor.name if not isinstance(x, Wait) else "")
        == name
    ]
