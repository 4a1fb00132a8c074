"""Which classes a net takes for which, as a table: each class against each, or of many classes a line for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

import numpy as np

from minidnn.report import table
from minidnn.results.runs import ConfusionRow
from minidnn.training.confusion import Confusion

MOST = 50  # classes of which all pairs may be shown
TAKEN = 3  # classes that a line names at most


def show(confusion: Confusion, file: TextIO | None = None) -> None:
    """Print the table, and the share of right answers below. A table of all pairs has to fit the terminal; else a line
    for each label names the class that it was most often taken for."""
    totals, right = confusion.counts.sum(1), confusion.class_accuracy
    ends = [(str(n), "–" if share is None else f"{share:.1%}") for n, share in zip(totals, right, strict=True)]
    headings = ["label", *confusion.names, "samples", "right"]
    lines = [[str(n) if n else "·" for n in row] for row in confusion.counts] if len(confusion.names) <= MOST else []
    title = f"Labels in rows, predictions in columns (layer {confusion.layer})"
    if not lines or _width(headings, lines, confusion.names) > table.console_of(file).width:
        headings = ["label", "what", "samples", "right"]
        lines = [[_taken(confusion, k)] for k in range(len(confusion.names))]
        title = f"What each label was taken for (layer {confusion.layer})"
    lines = [[name, *row, *end] for name, row, end in zip(confusion.names, lines, ends, strict=True)]
    table.plain(headings, lines, title, file=file)
    shares = [share for share in right if share is not None]
    if confusion.accuracy is not None:
        text = f"{confusion.accuracy:.2%} right: {np.trace(confusion.counts)} of {confusion.samples}"
        table.console_of(file).print(f"{text}; mean over classes {sum(shares) / len(shares):.2%}")


def _width(headings: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]) -> int:
    """The characters of a line of the table of all pairs, about."""
    columns = (max(map(len, column)) for column in zip(headings[1:-2], *rows, strict=True))
    return max(map(len, names)) + sum(columns) + 3 * len(headings) + 16


def _taken(confusion: Confusion, label: int) -> str:
    """The classes that a label was taken for most often, wrongly, with how often."""
    row = confusion.counts[label].copy()
    row[label] = 0
    order = [k for k in (-row).argsort(kind="stable")[:TAKEN] if row[k]]
    return ", ".join(f"{confusion.names[k]} {row[k]}" for k in order) or "–"


def record(confusion: Confusion) -> ConfusionRow:
    """The confusion as a record."""
    return ConfusionRow(
        layer=confusion.layer,
        class_names=list(confusion.names),
        counts=confusion.counts.tolist(),
        samples=confusion.samples,
        accuracy=confusion.accuracy,
        class_accuracy=list(confusion.class_accuracy),
    )
