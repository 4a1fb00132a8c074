"""What one look at a paper's nets gives: rows that are computed together, and the figures that they are of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from minidnn_papers.records import ReproducedRow
from minidnn_papers.row import Row, Tell


@dataclass(frozen=True)
class Part:
    """`rows` yields rows of these figures, and of no others."""

    rows: Callable[[Tell], Iterator[Row]]
    figures: tuple[str, ...]

    def concerns(self, wanted: Sequence[str]) -> bool:
        """Whether some row may be one of `wanted`; the whole paper is wanted if there is none."""
        names = [name for text in wanted for name in accumulate(text.split(", "), lambda a, b: f"{a}, {b}")]
        return not wanted or any(_within(name, figure) for name in names for figure in self.figures)


def is_wanted(row: Row | ReproducedRow, wanted: Sequence[str]) -> bool:
    """Whether the figure and the quantity of a row have the words of one of `wanted`: "Figure 11", "abstract", "Figure
    11, average"."""
    return not wanted or any(_within(name, f"{row.figure}, {row.quantity}") for name in wanted)


def _within(words: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text, re.IGNORECASE) is not None
