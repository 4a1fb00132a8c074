"""A table of the largest batch, size, number of tokens or depth that each policy places within a budget."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from minidnn.memory.policies import AT
from minidnn.report.look import Cells, Look
from minidnn.report.table import duration, size
from minidnn.spoken import option

Row = Mapping[str, Any]

MEANING = (
    "Found: the largest size tried that fits the budget, with a proved plan. Next: the smallest size tried above it, "
    "which does not fit. Placement is greedy, so a larger size may fit again."
)
SPARED = ("searched", "plans", "host", "one step")


def cells(document: Row, what: str) -> Cells:
    """Headings, and a line per policy. what: "batch", "size", "tokens" or "depth" """
    headings = ["policy", f"found {what}", "needs", "host", "one step", "next", "would need", "plans", "searched"]
    return headings, [_line(r, what) for r in document["rows"]]


def sentences(document: Row, what: str) -> list[str]:
    """The meaning of the columns, and what the bound excludes."""
    sentences = [MEANING]
    for r in document["rows"]:
        if r["multiple_of"] > 1 and AT in r["policy"]:
            sentences.append(multiples(r["policy"], r["multiple_of"]))
    if any(r["ended"] for r in document["rows"]):
        sentences.append(f"* stopped by {option('seconds')}: sizes between found and next were not tried.")
    if beyond := document["excluded"]:
        no, needs = f"No plan that runs each op whole fits {what} {beyond[what]}", size(beyond["least_bytes"])
        sentences.append(f"{no}: the bound is {needs} (docs/policies.md).")
    return sentences


def multiples(policy: str, of: int) -> str:
    """A sentence on the batches that were tried under a policy with parts."""
    return f"{policy} was tried only at multiples of {of}: other batches run in other numbers of parts, or unsplit."


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


def look(what: str) -> Look:
    """The looks of a search for the largest "batch", "size", "tokens" or "depth"."""
    return Look(partial(cells, what=what), partial(sentences, what=what), SPARED)
