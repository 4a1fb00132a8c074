"""Tables of the seconds of each layer, and of each convolution pass by each of its algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minidnn.report.table import duration, plain, size
from minidnn.visible import say

Row = Mapping[str, Any]
PARTS = ("forward_seconds", "backward_seconds", "update_seconds")
SUMS = {"chosen": "as {policy} takes them", "fastest": "fastest", "least": "of least workspace"}


def show_layers(rows: Sequence[Row], seconds: float, title: str) -> None:
    """Print a row per layer, and their sum. seconds: the time of one step."""
    plain(*layer_cells(rows), title)
    say(f"one step: {duration(seconds)}")


def layer_cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings, a line per layer, and their sum."""
    lines = [
        [row["layer"], *(duration(row[k]) if row[k] else "–" for k in PARTS), f"{100 * row['share']:.1f} %"]
        for row in rows
    ]
    lines.append(["all layers", *(duration(sum(row[k] for row in rows)) for k in PARTS), "100 %"])
    return ["layer", "forward", "backward", "update", "share"], lines


def show_algorithms(rows: Sequence[Row], sums: Mapping[str, Row], policy: str, title: str) -> None:
    """Print a row per algorithm, then sums of seconds over all ops.

    The sums are with the algorithms that the policy chose, the fastest ones, and those of least workspace."""
    plain(*algorithm_cells(rows, policy), title)
    for sentence in sum_sentences(sums, policy):
        say(sentence)


def sum_sentences(sums: Mapping[str, Row], policy: str) -> list[str]:
    """A sentence for each of the three sums."""
    return [
        f"all, {words.format(policy=policy)}: {duration(sums[which]['op_seconds'])}, workspace up to "
        f"{size(sums[which]['workspace_bytes'])}"
        for which, words in SUMS.items()
    ]


def algorithm_cells(rows: Sequence[Row], policy: str) -> tuple[list[str], list[list[str]]]:
    """Headings, and a line per algorithm; what a line shares with the one above is left out."""
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
    return ["layer", "what", "algorithm", "workspace", "time", "of the fastest", policy], lines
