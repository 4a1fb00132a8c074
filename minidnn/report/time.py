"""Tables of the seconds of each layer, and of each convolution pass by each of its algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minidnn.report.look import Cells, Look
from minidnn.report.table import duration, size

Row = Mapping[str, Any]
PARTS = ("forward_seconds", "backward_seconds", "update_seconds")
SUMS = {
    "chosen_sum": "with the algorithms of {policy}",
    "fastest_sum": "with the fastest",
    "least_sum": "with the least workspace",
}


def layer_cells(document: Row) -> Cells:
    """Headings, a line per layer, and their sum."""
    rows = document["rows"]
    lines = [
        [row["layer"], *(duration(row[k]) if row[k] else "–" for k in PARTS), f"{100 * row['share']:.1f} %"]
        for row in rows
    ]
    lines.append(["all layers", *(duration(sum(row[k] for row in rows)) for k in PARTS), "100 %"])
    return ["layer", "forward", "backward", "update", "share"], lines


def layers_say(document: Row) -> list[str]:
    """The time of one step."""
    return [f"one step: {duration(document['step_seconds'])}"]


def algorithms_say(document: Row) -> list[str]:
    """Sums of seconds over all ops: with the algorithms that the policy chose, the fastest ones, and those with the
    least workspace."""
    return [
        f"all ops, {words.format(policy=document['policy'])}: {duration(document[name]['op_seconds'])}, "
        f"workspace up to {size(document[name]['workspace_bytes'])}"
        for name, words in SUMS.items()
    ]


def algorithm_cells(document: Row) -> Cells:
    """Headings, and a line per algorithm; what a line shares with the one above is left out."""
    rows = document["rows"]
    best: dict[str, float] = {}
    for row in rows:
        best[row["op"]] = min(row["op_seconds"], best.get(row["op"], row["op_seconds"]))
    lines, layer, op = [], None, None
    for row in rows:
        lines.append(
            [
                row["layer"] if row["layer"] != layer else "",
                row["part"] if row["op"] != op else "",
                row["algorithm"],
                size(row["workspace_bytes"]),
                duration(row["op_seconds"]),
                f"{row['op_seconds'] / best[row['op']]:.2f}×",
                "chosen" if row["chosen"] else "",
            ]
        )
        layer, op = row["layer"], row["op"]
    return ["layer", "what", "algorithm", "workspace", "time", "of the fastest", document["policy"]], lines


LAYERS = Look(layer_cells, layers_say)
ALGORITHMS = Look(algorithm_cells, algorithms_say)
