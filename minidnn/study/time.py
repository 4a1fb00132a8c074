"""The seconds of each layer, from the traces of steps."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from minidnn.memory.execution.trace import Trace
from minidnn.memory.schedule import Compute, Schedule
from minidnn.results.times import LayerTime

# an op's pass -> the column that its seconds are added to; a recomputed op counts as backward, since it runs then
COLUMNS = {
    "forward": "forward_seconds",
    "loss": "forward_seconds",
    "backward": "backward_seconds",
    "update": "update_seconds",
}


def layers(schedule: Schedule, traces: Sequence[Trace]) -> list[LayerTime]:
    """A row per layer in forward order. A layer's seconds are the sum over its ops of their medians over the traces."""
    taken: dict[int, list[float]] = {}
    for trace in traces:
        for span in trace.spans:
            taken.setdefault(span.index, []).append(span.end - span.start)
    rows: dict[str, dict[str, Any]] = {
        layer: {"layer": layer, **dict.fromkeys(COLUMNS.values(), 0.0)} for layer in schedule.program.layers
    }
    for index, seconds in taken.items():
        x = schedule.instructions[index]
        if isinstance(x, Compute):
            layer = x.op.whole.layer
            row = rows.setdefault(layer, {"layer": layer, **dict.fromkeys(COLUMNS.values(), 0.0)})
            row["backward_seconds" if x.run else COLUMNS[x.op.during.value]] += median(seconds)
    total = sum(row[c] for row in rows.values() for c in set(COLUMNS.values())) or 1.0
    for row in rows.values():
        row["share"] = sum(row[c] for c in set(COLUMNS.values())) / total
    return [LayerTime(**row) for row in rows.values()]
