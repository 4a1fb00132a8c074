"""A table of the largest batch, size or depth that each policy places within a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minidnn.report.table import duration, plain, size
from minidnn.visible import say

Row = Mapping[str, Any]

MEANING = (
    "Found is the largest tried that was placed within the budget, and its plan was proved. Next is the smallest tried"
    " above it, which was not: placement is greedy, so that beyond it some may fit again."
)
ENDED = "* ended by --seconds: what lies between found and next was not tried."
SPARED = ("searched", "plans", "host", "one step")


def show(document: Row, what: str, title: str) -> None:
    """Print a row per policy, and below them the meaning of the columns and what the bound excludes.

    what: "batch", "size" or "depth"
    """
    rows: Sequence[Row] = document["rows"]
    headings = ["policy", f"found {what}", "needs", "host", "one step", "next", "would need", "plans", "searched"]
    plain(headings, [_line(r, what) for r in rows], title, spare=SPARED)
    say(MEANING)
    if any(r["ended"] for r in rows):
        say(ENDED)
    if beyond := document["excluded"]:
        needs = size(beyond["least_bytes"])
        say(f"No plan of any policy places {what} {beyond[what]}: the bound asks for {needs} (docs/policies.md).")


def _line(r: Row, what: str) -> list[str]:
    on_device = r["next"] is None or r["next_peak_bytes"] > r["budget_bytes"]
    return [
        r["policy"],
        ("none" if r[what] is None else str(r[what])) + ("*" if r["ended"] else ""),
        size(r["peak_bytes"]),
        size(r["host_bytes"]),
        duration(r["step_seconds"]),
        "–" if r["next"] is None else str(r["next"]),
        size(r["next_peak_bytes"]) if on_device else f"{size(r['next_host_bytes'])} on the host",
        str(r["plans"]),
        duration(r["search_seconds"]),
    ]
