"""Predictions as a table: a line for each sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from minidnn.report.table import plain
from minidnn.results.runs import Prediction


def show(rows: Sequence[Prediction]) -> None:
    """Print the likeliest class of each sample, and those after it."""
    counts = Counter(row.path for row in rows)
    headings = ["sample", "class", "probability"]
    lines = []
    for row in rows:
        place = row.path if counts[row.path] == 1 else f"{row.path} {row.index}"
        names = row.class_names or [str(c) for c in row.classes]
        first, *rest = zip(names, row.probabilities, strict=True)
        lines.append([place, first[0], f"{first[1]:.1%}", ", ".join(f"{name} {p:.1%}" for name, p in rest)])
    if max(len(row.classes) for row in rows) > 1:
        headings.append("then")
    plain(headings, [line[: len(headings)] for line in lines])
