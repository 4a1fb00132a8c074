"""The papers' figures compared with ours: tables for a terminal, a picture and a page of paired bars, and files.

Rows are `ReproducedRow`s (records.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TextIO

from minidnn.api.answer import Answer
from minidnn.report.look import Cells, Look
from minidnn.report.markup import escape
from minidnn.report.page import key
from minidnn.report.page import page as framed
from minidnn.report.table import plain, prose
from minidnn.visible import say
from minidnn_papers import SYSTEMS
from minidnn_papers.charts import KEY, charts, drawn, svg
from minidnn_papers.charts import WIDTH as CHART
from minidnn_papers.charts import picture as stacked
from minidnn_papers.records import ReproducedRow, Reproduction
from minidnn_papers.row import EXACT, YES_OR_NO

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
    """Both figures as text. Ours has as many decimals as the paper's. If it is below 100 and has more of them, it is
    written by `number`, unless it counts as equal."""
    if paper is None or ours is None:
        return number(paper), number(ours)
    decimals = len(f"{paper:.6f}".rstrip("0").partition(".")[2])
    shown = f"{ours:.{decimals}f}"
    same = float(shown) == paper and abs(ours - paper) < EXACT * abs(paper)
    if abs(ours) < 100 and float(shown) != ours and not same:
        shown = number(ours)
    return f"{paper:.{decimals}f}", shown


def both(row: Row) -> tuple[str, str]:
    """The paper's figure and ours as text."""
    if row["quantity"] not in YES_OR_NO:
        return exact(row["paper"], row["ours"])
    paper, ours = (number(v) if v is None else "yes" if v else "no" for v in (row["paper"], row["ours"]))
    return paper, ours


def deviation(row: Row) -> str:
    if row["quantity"] in YES_OR_NO and row["deviation"]:
        return "differs"
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
        reasons = marks(group)
        lines = [[*_cells(r, tried), mark(r, reasons)] for r in group]
        headings = ["case", "what", "paper", "ours", "off", *(["tried", "left"] if tried else []), "why"]
        plain(headings, lines, f"{SYSTEMS.get(system, system)}, {figure}", file)
        for reason, at in reasons.items():
            prose(f"  ({at}) {reason}", file)
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
    cells = [r["case"], r["quantity"], *both(r), deviation(r)]
    if tried:
        cells += ["" if r["tried"] is None else exact(r["paper"], r["tried"])[1], left(r)]
    return cells


def _figures(rows: Iterable[Row]) -> Iterator[tuple[tuple[str, str], list[Row]]]:
    order: dict[tuple[str, str], list[Row]] = {}
    for r in rows:
        order.setdefault((r["system"], r["figure"]), []).append(r)
    yield from order.items()


def marks(group: Sequence[Row]) -> dict[str, str]:
    """{reason: its mark} for the rows that differ or are missing, in order of appearance."""
    result = dict.fromkeys(r["reason"] for r in group if r["reason"] and not _equal(r))
    return {reason: str(k) for k, reason in enumerate(result, 1)}


def mark(row: Row, reasons: Mapping[str, str]) -> str:
    """The mark of a row's reason among those of `marks`; empty if it needs none."""
    return "" if _equal(row) else reasons.get(row["reason"], "")


def _equal(row: Row) -> bool:
    close = row["deviation"] is not None and abs(row["deviation"]) < EXACT
    return close and row["verdict"] != "by construction"


# ---- beside bars


def beside(row: Row, marked: str = "") -> list[str]:
    """Both figures and how far ours is off, on one line or two. marked: the mark of the reason, if it is shown"""
    paper, ours = both(row)
    off = "by construction" if row["verdict"] == "by construction" else deviation(row)
    if row["verdict"] == "explained by a trial":
        off += f", then {left(row)}"
    off = "" if off == "–" else off
    off += f" ({marked})" if marked else ""
    numbers = f"{paper} → {ours}"
    return [f"{numbers}   {off}".rstrip()] if len(numbers) + len(off) <= SHORT else [numbers, off]


SHORT = 24  # letters of both figures and the deviation on one line


# ---- as a picture and as a page


def picture(document: Row, title: str, note: str) -> str:
    """An SVG file of all rows."""
    return stacked(document["rows"], title, note, beside)


def page(document: Row, title: str, notes: str, version: str) -> str:
    """An HTML page of all figures of all systems: their verdicts, paired bars, the paper's above ours, and the
    reasons."""
    rows, parts = document["rows"], []
    for system, of_system in groupby(sorted(rows, key=_place), key=lambda r: r["system"]):
        mine = list(of_system)
        name = escape(SYSTEMS.get(system, system))
        parts.append(f'<h2 class="system">{name}</h2><p class="dim">{escape(summary(mine))}.</p>')
        for (_, figure), group in _figures(mine):
            parts.append(f"<section><h2>{escape(figure)}</h2>{_charts(group)}{_notes(group)}</section>")
    body = f"""<p class="says">{escape(summary(rows))}.</p>
<p class="dim">{escape(notes)}</p>
<section><h2>Figures by verdict</h2><div class="scroll">{_table(*_standings(document["verdicts"]))}</div></section>
{key(KEY)}
{"".join(parts)}"""
    made = f"Made by minidnn {escape(version)} (<code>minidnn reproduce</code>)."
    return framed(title, body, made, STYLE)


STYLE = """h2.system { font-size: 22px; margin: 34px 0 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 400px), 1fr)); gap: 8px 28px; }
.charts svg { min-width: 0; }
"""


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _place(row: Row) -> int:
    return list(SYSTEMS).index(row["system"]) if row["system"] in SYSTEMS else len(SYSTEMS)


def _notes(group: Sequence[Row]) -> str:
    items = "".join(f"<li>{escape(reason)}</li>" for reason in marks(group))
    return f'<ol class="dim">{items}</ol>' if items else ""


def _charts(group: Sequence[Row]) -> str:
    """The charts of one figure, as many beside each other as there is room for."""
    reasons = marks(group)

    def words(row: Row) -> list[str]:
        return beside(row, mark(row, reasons))

    return f'<div class="charts">{"".join(svg(*_sized(drawn(chart, words))) for chart in charts(group))}</div>'


def _sized(chart: tuple[str, int]) -> tuple[str, float, float]:
    inside, height = chart
    return inside, CHART, height


# ---- as an answer, which writes files


def cells(document: Row) -> Cells:
    """Headings, and a line for each row."""
    headings = ["system", "figure", "case", "what", "paper", "ours", "off", "verdict"]
    return headings, [
        [r["system"], r["figure"], r["case"], r["quantity"], *both(r), deviation(r), r["verdict"]]
        for r in document["rows"]
    ]


class Reproduced(Answer[Reproduction, ReproducedRow]):
    """The rows of `minidnn reproduce`."""

    look = Look(cells, picture=picture, page=page)

    def show(self) -> None:
        """Print a table for each figure, and how many have which verdict."""
        show(self.rows)
        show_verdicts(self.document["verdicts"])
        prose(f"{summary(self.rows)}. {self.notes}")
