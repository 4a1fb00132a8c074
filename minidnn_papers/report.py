"""The papers' figures compared with ours: tables for a terminal, and one HTML page of paired bars.

Rows are `ReproducedRow`s (records.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TextIO

from minidnn.report.draw import WIDTH
from minidnn.report.markup import escape
from minidnn.report.page import page as framed
from minidnn.report.table import plain
from minidnn.visible import say
from minidnn_papers import SYSTEMS
from minidnn_papers.row import EXACT

Row = Mapping[str, Any]

CLOSE = 0.05  # figures count as close up to this deviation: a bar in a paper cannot be read more precisely
OPEN = ("explained by a trial", "not explained", "by construction")  # the verdicts beyond 10 %


# ---- in words


def number(value: float | None) -> str:
    """A number with about as many digits as a paper prints: 16121, 118.2, 0.818; "–" for None."""
    if value is None:
        return "–"
    if value == int(value) and abs(value) < 1e9:
        return str(int(value))
    decimals = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
    return f"{value:.{decimals}f}"


def exact(paper: float | None, ours: float | None) -> tuple[str, str]:
    """Both figures as text. Ours has as many decimals as the paper's; if it is below 100 and still differs then, it is
    written by `number`."""
    if paper is None or ours is None:
        return number(paper), number(ours)
    decimals = len(f"{paper:.6f}".rstrip("0").partition(".")[2])
    shown = f"{ours:.{decimals}f}"
    if abs(ours) < 100 and float(shown) != ours and float(shown) != paper:
        shown = number(ours)
    return f"{paper:.{decimals}f}", shown


def deviation(row: Row) -> str:
    if row["deviation"] is None:
        return "–" if row["ours"] is None or row["paper"] is None else "differs"
    return _per_cent(row["deviation"])


def left(row: Row) -> str:
    """The deviation of `tried`; empty if nothing was tried."""
    return "" if row["left"] is None else _per_cent(row["left"])


def _per_cent(off: float) -> str:
    return "equal" if abs(off) < EXACT else f"{100 * off:+.1f} %"


def summary(rows: Sequence[Row]) -> str:
    """A sentence: how many figures are equal, close, further off, or missing."""
    offs = [abs(r["deviation"]) for r in rows if r["deviation"] is not None]
    missing = sum(r["ours"] is None for r in rows)
    equal, close = sum(o < EXACT for o in offs), sum(o <= CLOSE for o in offs)
    both = sum(r["paper"] is not None and r["ours"] is not None for r in rows)
    text = f"{both} figures: {equal} equal, {close - equal} more within {CLOSE:.0%}, {both - close} further off"
    told = Counter(r["verdict"] for r in rows)
    if any(told[verdict] for verdict in OPEN):
        text += f" ({', '.join(f'{told[verdict]} {verdict}' for verdict in OPEN)})"
    if missing:
        text += f"; {missing} that cannot be computed here"
    return text + (f"; {len(rows) - both - missing} that the paper does not give" if len(rows) > both + missing else "")


def show(rows: Sequence[Row], file: TextIO | None = None) -> None:
    """Print a table for each figure of a paper, and below it the reasons for differences."""
    for (system, figure), group in _figures(rows):
        tried = any(r["tried"] is not None for r in group)
        lines = [[*_cells(r, tried), _mark(r, group)] for r in group]
        headings = ["case", "what", "paper", "ours", "off", *(["tried", "left"] if tried else []), "why"]
        plain(headings, lines, f"{SYSTEMS.get(system, system)}, {figure}", file)
        for mark, reason in _reasons(group).items():
            say(f"  ({mark}) {reason}", file=file)
        say(file=file)


def show_verdicts(verdicts: Sequence[Row], file: TextIO | None = None) -> None:
    """Print how many figures of each system have which verdict."""
    plain(*_standings(verdicts), "Figures by verdict", file)
    say(file=file)


def _standings(verdicts: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings, and a line for each system and one for all."""
    result: dict[str, list[int]] = {}
    for v in verdicts:
        result.setdefault(v["system"], []).append(v["figures"])
    lines = [[SYSTEMS.get(system, system), *map(str, counts), str(sum(counts))] for system, counts in result.items()]
    if len(result) > 1:
        every = [sum(column) for column in zip(*result.values(), strict=True)]
        lines.append(["all", *map(str, every), str(sum(every))])
    return ["system", *dict.fromkeys(v["verdict"] for v in verdicts), "figures"], lines


def _cells(r: Row, tried: bool) -> list[str]:
    cells = [r["case"], r["quantity"], *exact(r["paper"], r["ours"]), deviation(r)]
    if tried:
        cells += ["" if r["tried"] is None else exact(r["paper"], r["tried"])[1], left(r)]
    return cells


def _figures(rows: Iterable[Row]) -> Iterator[tuple[tuple[str, str], list[Row]]]:
    order: dict[tuple[str, str], list[Row]] = {}
    for r in rows:
        order.setdefault((r["system"], r["figure"]), []).append(r)
    yield from order.items()


def _reasons(group: Sequence[Row]) -> dict[str, str]:
    """{mark: reason} for the rows that differ or are missing, in order of appearance."""
    result = dict.fromkeys(r["reason"] for r in group if r["reason"] and not _equal(r))
    return {str(k): reason for k, reason in enumerate(result, 1)}


def _mark(row: Row, group: Sequence[Row]) -> str:
    return next((m for m, reason in _reasons(group).items() if reason == row["reason"] and not _equal(row)), "")


def _equal(row: Row) -> bool:
    close = row["deviation"] is not None and abs(row["deviation"]) < EXACT
    return close and row["verdict"] != "by construction"


# ---- as a page


def page(rows: Sequence[Row], verdicts: Sequence[Row], notes: str, version: str) -> str:
    """An HTML page of all figures of all systems: their verdicts, paired bars, the paper's above ours, and the
    reasons."""
    parts = []
    for system, of_system in groupby(sorted(rows, key=_place), key=lambda r: r["system"]):
        mine = list(of_system)
        title = escape(SYSTEMS.get(system, system))
        parts.append(f'<h2 class="system">{title}</h2><p class="dim">{summary(mine)}.</p>')
        for (_, figure), group in _figures(mine):
            parts.append(f"<section><h2>{escape(figure)}</h2>{_charts(group)}{_notes(group)}</section>")
    body = f"""<p class="says">{escape(summary(rows))}.</p>
<p class="dim">{escape(notes)}</p>
<section><h2>Figures by verdict</h2><div class="scroll">{_table(*_standings(verdicts))}</div></section>
{"".join(parts)}"""
    made = f"Made by minidnn {escape(version)} (<code>minidnn reproduce</code>)."
    return framed(
        "The papers' figures, theirs and ours", body, made, "h2.system { font-size: 22px; margin: 34px 0 0; }"
    )


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _place(row: Row) -> int:
    return list(SYSTEMS).index(row["system"]) if row["system"] in SYSTEMS else len(SYSTEMS)


def _notes(group: Sequence[Row]) -> str:
    items = "".join(f"<li>{escape(reason)}</li>" for reason in _reasons(group).values())
    return f'<ol class="dim">{items}</ol>' if items else ""


LABEL, VALUE, ROW = 330, 250, 34


def _charts(group: Sequence[Row]) -> str:
    """HTML with one chart per quantity, since bars on one scale must have one unit."""
    out = []
    quantities = Counter(r["quantity"] for r in group)
    for quantity in quantities:
        rows = [r for r in group if r["quantity"] == quantity]
        drawn = [r for r in rows if r["paper"] is not None or r["ours"] is not None]
        out.append(f'<p class="note"><b>{escape(quantity)}</b></p>')
        if drawn:
            out.append(f'<div class="scroll">{_bars(drawn, group)}</div>')
        out += [f'<p class="dim">{escape(r["case"])}: {escape(r["reason"])}</p>' for r in rows if r not in drawn]
    return "".join(out)


def _bars(rows: Sequence[Row], group: Sequence[Row]) -> str:
    most = max(abs(v) for r in rows for v in (r["paper"], r["ours"]) if v is not None) or 1.0
    plot = WIDTH - LABEL - VALUE
    out = []
    for k, r in enumerate(rows):
        y = k * ROW
        out.append(f'<text x="{LABEL - 10}" y="{y + 19}" text-anchor="end">{escape(r["case"])}</text>')
        for value, kind, top in ((r["paper"], "labels", 5), (r["ours"], "feature_maps", 16)):
            if value is not None:
                width = max(plot * abs(value) / most, 1)
                out.append(f'<rect class="{kind}" x="{LABEL}" y="{y + top}" width="{width:.1f}" height="9" rx="1.5"/>')
        paper, ours = exact(r["paper"], r["ours"])
        mark = _mark(r, group)
        words = f"{paper} → {ours}   {deviation(r)}" + (f", then {left(r)}" if left(r) else "")
        words += f" ({mark})" if mark else ""
        off = r["deviation"]
        bad = " bad" if r["ours"] is None or (off is not None and abs(off) > 4 * CLOSE) else ""
        out.append(f'<text class="soft{bad}" x="{LABEL + plot + 12}" y="{y + 19}">{escape(words)}</text>')
    key = (
        f'<rect class="labels" x="{LABEL}" y="{len(rows) * ROW + 8}" width="11" height="9" rx="1.5"/>'
        f'<text class="soft" x="{LABEL + 17}" y="{len(rows) * ROW + 17}">the paper</text>'
        f'<rect class="feature_maps" x="{LABEL + 100}" y="{len(rows) * ROW + 8}" width="11" height="9" rx="1.5"/>'
        f'<text class="soft" x="{LABEL + 117}" y="{len(rows) * ROW + 17}">ours</text>'
    )
    height = len(rows) * ROW + 26
    return f'<svg class="mini" viewBox="0 0 {WIDTH} {height}" role="img">{"".join(out)}{key}</svg>'
