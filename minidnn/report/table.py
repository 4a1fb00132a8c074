"""Rows as tables for people, and as JSON for programs. Sizes are binary (MiB, GiB), times three figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from minidnn import sizes

Row = Mapping[str, Any]


def duration(seconds: float | None) -> str:
    """Three figures and a unit: "1.24 s", "35.2 ms", "871 µs"."""
    if seconds is None:
        return "–"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        value = seconds * scale
        if value >= 0.9995 or unit == "µs":
            decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{decimals}f} {unit}"
    raise AssertionError


def size(nbytes: float | None) -> str:
    return "–" if nbytes is None else "0" if nbytes == 0 else sizes.text(nbytes)


def rate(per_second: float) -> str:
    """Four figures, and as many more as a whole number has: "48.20", "521300"."""
    return f"{per_second:#.4g}" if per_second < 999.95 else f"{per_second:.0f}"


def _identical(row: Row) -> str:
    return {True: "yes", False: "NO", None: "–"}[row.get("identical")]


REFUSED = "The numbers of a refused policy are those it has under the smallest budget that it could keep."

# heading -> what stands there
COLUMNS: dict[str, Callable[[Row], str]] = {
    "policy": lambda r: r["policy"],
    "fits": lambda r: "yes" if r["fits"] else "refused",
    "peak": lambda r: size(r["peak_bytes"]),
    "average": lambda r: size(r["average_bytes"]),
    "offload": lambda r: size(r["offload_bytes"]),
    "prefetch": lambda r: size(r["prefetch_bytes"]),
    "host": lambda r: size(r["host_bytes"]),
    "pinned": lambda r: size(r["pinned_bytes"]),
    "stored": lambda r: size(r.get("stored_bytes") or 0),
    "recomputed": lambda r: str(r["recomputed_ops"]),
    "time": lambda r: duration(r["seconds"]),
    "slowdown": lambda r: "–" if r["slowdown"] is None else f"{r['slowdown']:.2f}×",
    "stalled": lambda r: duration(r["stall_seconds"]) if r["stall_seconds"] else "0",
    "algorithms": lambda r: r["algorithms"],
    "weights equal": _identical,
}


def cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells, without the columns that say nothing here."""
    columns = dict(COLUMNS)
    if all(r.get("identical") is None for r in rows):
        del columns["weights equal"]
    if not any(r.get("pageable_bytes") for r in rows):
        del columns["pinned"]
    if not any(r.get("stored_bytes") for r in rows):
        del columns["stored"]
    if not any(r["recomputed_ops"] for r in rows):
        del columns["recomputed"]
    if all(r["algorithms"] == "default" for r in rows):
        del columns["algorithms"]
    return list(columns), [[text(r) for text in columns.values()] for r in rows]


# What a narrow terminal does without, the least telling first.
SPARED = ("prefetch", "algorithms", "host", "average", "stalled", "offload", "recomputed")


def spared(headings: Sequence[str], lines: Sequence[Sequence[str]], width: int) -> list[str]:
    """Columns to leave out, so that no cell of the others is cut in `width` characters."""
    taken = {h: max(len(h), *map(len, column)) for h, *column in zip(headings, *lines, strict=True)}
    if "algorithms" in taken:  # may be folded, at its commas
        i = headings.index("algorithms")
        taken["algorithms"] = max(len(part) + 1 for line in lines for part in line[i].split(", "))
    out: list[str] = []
    for heading in SPARED:
        if 2 + sum(taken.values()) + 3 * (len(taken) - 1) <= width:
            break
        if taken.pop(heading, None):
            out.append(heading)
    return out


def show(rows: Sequence[Row], title: str = "", file: TextIO | None = None) -> None:
    """Print rows as a table, and under it why a policy was refused."""
    from rich import box
    from rich.table import Table

    console = _console(file)
    headings, lines = cells(rows)
    without = spared(headings, lines, console.width)
    kept = [i for i, heading in enumerate(headings) if heading not in without]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in (headings[i] for i in kept):
        left = heading in ("policy", "fits", "algorithms", "weights equal")
        table.add_column(heading, justify="left" if left else "right", no_wrap=heading != "algorithms")
    for row, line in zip(rows, lines, strict=True):
        table.add_row(*(line[i] for i in kept), style=None if row["fits"] else "red")
    if title:
        console.print(title, style="bold", soft_wrap=True)
    console.print(table)
    if without:
        console.print(_left_out(without), style="dim")
    for row in rows:
        if row.get("why"):
            console.print(f"refused: {row['why']}", style="red", soft_wrap=True)
    if any(row.get("why") for row in rows):
        console.print(REFUSED, soft_wrap=True)


LONGEST = 24  # of a word that is not folded


def plain(
    headings: Sequence[str],
    lines: Sequence[Sequence[str]],
    title: str = "",
    file: TextIO | None = None,
    spare: Sequence[str] = (),
) -> None:
    """Print any table: the first column and words to the left, folded between words; numbers, never cut, to the right.
    `spare`: headings that a narrow terminal does without, the least telling first."""
    from rich import box
    from rich.table import Table

    words = [not i or heading in ("what", "algorithm", "available") for i, heading in enumerate(headings)]
    least = []  # characters that a column has to have: its numbers', or its words' unless one is very long
    for i, heading in enumerate(headings):
        column = [heading, *(line[i] for line in lines)]
        longest = max(len(part) for cell in column for part in (cell.split() if words[i] else [cell]) or [""])
        least.append(longest if not words[i] or longest <= LONGEST else LONGEST // 2)
    kept, without = list(range(len(headings))), []

    def taken() -> int:
        return 2 + sum(least[i] for i in kept) + 3 * (len(kept) - 1)

    width = _console(file).width
    for heading in spare:
        if taken() > width:
            kept.remove(headings.index(heading))
            without.append(heading)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i in kept:
        justify: Any = "left" if words[i] else "right"
        table.add_column(headings[i], justify=justify, no_wrap=not words[i], overflow="fold", min_width=least[i])
    for line in lines:
        table.add_row(*(line[i] for i in kept))
    console = _console(file, at_least=taken())
    if title:
        console.print(title, style="bold", soft_wrap=True)
    console.print(table)
    if without:
        console.print(_left_out(without), style="dim", soft_wrap=True)


def _left_out(headings: Sequence[str]) -> str:
    return f"left out for want of width: {', '.join(headings)} (--json has all)"


def dump(value: Any, file: TextIO | None = None) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=1, ensure_ascii=False), file=file or sys.stdout)


def _console(file: TextIO | None, at_least: int = 0) -> Any:
    """`at_least`: characters below which a line is left to the terminal to fold."""
    from rich.console import Console

    target = file or sys.stdout
    # into a pipe or a file nothing is folded; and "vdnn_all:m:" is no emoji
    width = None if target.isatty() else 200
    console = Console(file=target, width=width, markup=False, emoji=False, highlight=False)
    if console.width < at_least:
        console.width = at_least
    return console
