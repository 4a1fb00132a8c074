"""Tables for people, and JSON for programs. Sizes are binary (MiB, GiB); times have three digits."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from minidnn import sizes
from minidnn.measuring.spread import Spread
from minidnn.results import Document
from minidnn.spoken import either
from minidnn.visible import visible


def duration(seconds: float | None, spread: Spread | None = None) -> str:
    """Seconds with three digits and a unit: "1.24 s", "35.2 ms", "871 µs"; "–" for None.

    spread: an interval to append in the same unit: "1.24 s (1.19–1.31)"."""
    if seconds is None:
        return "–"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        value = seconds * scale
        if value >= 0.9995 or unit == "µs":
            decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
            text = f"{value:.{decimals}f} {unit}"
            if spread is None or spread.low == spread.high:
                return text
            return f"{text} ({spread.low * scale:.{decimals}f}–{spread.high * scale:.{decimals}f})"
    raise AssertionError


def long(seconds: float) -> str:
    """Like `duration` up to two minutes, then minutes and hours: "1.24 s", "3.5 min", "2.1 h"."""
    if seconds < 120:
        return duration(seconds)
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def size(nbytes: float | None) -> str:
    return "–" if nbytes is None else "0" if nbytes == 0 else sizes.text(nbytes)


def rate(per_second: float) -> str:
    """A rate with four digits, or as a whole number from 1000 on: "48.20", "521300"."""
    return f"{per_second:#.4g}" if per_second < 999.95 else f"{per_second:.0f}"


WORDY = (
    "what", "algorithm", "available", "type", "bottoms", "gives", "class", "then", "role", "made at",
)  # headings of columns of words  # fmt: skip
LONGEST = 24  # characters; a longer word may be folded
PIPED = 200  # characters of a line in a pipe or a file, unless COLUMNS says otherwise


def plain(
    headings: Sequence[str],
    lines: Sequence[Sequence[str]],
    title: str = "",
    file: TextIO | None = None,
    spare: Sequence[str] = (),
) -> None:
    """Print a table. The first column and columns of words are aligned left and folded between words; columns of
    numbers are aligned right and never cut.

    spare: headings of columns, if there are such, that are left out on a narrow terminal, the least useful first."""
    from rich import box
    from rich.table import Table

    lines = [[visible(cell) for cell in line] for line in lines]
    words = [not i or heading in WORDY for i, heading in enumerate(headings)]
    least = []  # each column's least width in characters: its longest number or word, or less if that word is very long
    for i, heading in enumerate(headings):
        column = [heading, *(line[i] for line in lines)]
        longest = max(len(part) for cell in column for part in (cell.split() if words[i] else [cell]) or [""])
        least.append(longest if not words[i] or longest <= LONGEST else LONGEST // 2)
    kept, without = list(range(len(headings))), []

    def taken() -> int:
        return 2 + sum(least[i] for i in kept) + 3 * (len(kept) - 1)

    width = console_of(file).width
    for heading in spare:
        if heading in headings and taken() > width:
            kept.remove(headings.index(heading))
            without.append(heading)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i in kept:
        justify: Any = "left" if words[i] else "right"
        table.add_column(headings[i], justify=justify, no_wrap=not words[i], overflow="fold", min_width=least[i])
    for line in lines:
        table.add_row(*(line[i] for i in kept))
    console = console_of(file, at_least=taken())
    if title:
        prose(title, file, "bold")
    console.print(table)
    if without:
        prose(left_out(without), file, "dim")


def prose(text: str, file: TextIO | None = None, style: str = "") -> None:
    """Print sentences. On a terminal they are folded between words; a pipe or a file gets them on one line."""
    console_of(file).print(text, style=style or None, soft_wrap=not (file or sys.stdout).isatty())


def left_out(headings: Sequence[str]) -> str:
    """A note below a table that lacks these columns."""
    has = either("--json has", "the rows have")
    return f"columns left out to fit the width: {', '.join(headings)} ({has} all)"


def dump(document: Document | Mapping[str, Any], file: TextIO | None = None) -> None:
    """Print one JSON document, in ASCII: JSON's escapes keep what a terminal would obey.

    document: of minidnn.results, or plain values, as benchmarks have them"""
    plain = document.plain() if isinstance(document, Document) else document
    (file or sys.stdout).write(json.dumps(plain, indent=1) + "\n")


def console_of(file: TextIO | None, at_least: int = 0) -> Any:
    """A rich Console that prints to `file`, or to standard output if None, and is `at_least` characters wide. It makes
    each text that it prints `visible`, be it a line or a cell of a table.

    If the terminal is narrower than that, the terminal folds the lines itself."""
    from rich.console import Console

    class Visible(Console):
        def render_str(self, text: str, **options: Any) -> Any:
            return super().render_str(visible(text), **options)

    target = file or sys.stdout
    # emoji=False: "vdnn_all:m:" must stay text
    columns = os.environ.get("COLUMNS", "")
    asked = int(columns) if columns.isdecimal() else 0
    width = asked or (None if target.isatty() else PIPED)
    console = Visible(file=target, width=width, markup=False, emoji=False, highlight=False)
    if console.width < at_least:
        console.width = at_least
    return console
