"""The gallery of docs/: each paper's most important figure as a picture, and the table of the abstracts' headlines.

`make gallery` computes every row and writes docs/gallery/NAME.csv, which takes a while. The pictures and the table are
made of these files, by `make reference`. Pictures of bars are narrow: docs/style/site.css knows them by their names.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from minidnn_papers import SYSTEMS
from minidnn_papers.part import is_wanted
from minidnn_papers.records import ReproducedRow, Verdict
from minidnn_papers.report import both, deviation, left, mark, marks
from minidnn_papers.report import picture as drawn
from minidnn_papers.row import YES_OR_NO
from minidnn_papers.verb import NOTES, title

# {system: the figures that its page shows}
FIGURES: dict[str, tuple[str, ...]] = {
    "vdnn": ("Figure 11, maximum",), "vdnnpp": ("abstract",), "superneurons": ("Figure 10, peak",),
    "layrub": ("Figure 9",), "accudnn": ("abstract",),
}  # fmt: skip
NUMBERS = ("paper", "ours", "tried", "deviation", "left")  # fields that are numbers, or missing

HEAD = """# Five papers, reproduced

Made of `docs/gallery/*.csv` by `make reference`: do not edit.

minidnn has five published systems as policies. Each has a page here with its paper's most important figure, theirs
beside ours, and what does not hold. This page has the headlines: every number and claim of the five abstracts.
`minidnn reproduce --figure abstract` computes them; without `--figure`, it computes all {count} figures.

The verdict is computed from the numbers:

- *within 10 %*: ours differs from theirs by a tenth at most;
- *explained by a trial*: it comes within 10 % once one fact that the paper leaves open is changed;
- *by construction*: the numbers agree because of what we ask for, so they prove nothing;
- *not explained*: the headline is not reproduced here.

The notes below each table give reasons for the differences, as far as the numbers support them. Seconds are simulated;
no GPU was used.
"""
STANDINGS = "## All figures by verdict\n\nThe rows of every table and figure, those of the abstracts included."
TREE = "```{toctree}\n:hidden:\n\n" + "\n".join(FIGURES) + "\n```\n"


def read(path: Path) -> list[ReproducedRow]:
    """The rows of a file that `minidnn reproduce --report FILE.csv` wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        return [ReproducedRow(**{name: _value(name, text) for name, text in r.items()}) for r in csv.DictReader(file)]


def _value(name: str, text: str) -> Any:
    return (float(text) if text else None) if name in NUMBERS else text


def files(folder: Path) -> dict[str, str]:
    """{file: its text}: the pictures and the page of headlines, of the rows in `folder`."""
    rows = {system: read(folder / f"{system}.csv") for system in FIGURES}
    return {
        "index.md": headlines(rows),
        **{f"{system}_bars.svg": picture(system, some) for system, some in rows.items()},
    }


def picture(system: str, rows: Sequence[ReproducedRow]) -> str:
    """The figure of a system's page, as the command on that page draws it."""
    names = FIGURES[system]
    return drawn({"rows": [r for r in rows if is_wanted(r, names)]}, title([system], names), NOTES)


def headlines(rows: dict[str, list[ReproducedRow]]) -> str:
    """The text of docs/gallery/index.md."""
    sections = [_section(system, [r for r in some if is_wanted(r, ["abstract"])]) for system, some in rows.items()]
    count = sum(map(len, rows.values()))
    return "\n".join((HEAD.format(count=count), *sections, STANDINGS, "", *_standings(rows), "", TREE))


def _section(system: str, rows: Sequence[ReproducedRow]) -> str:
    lines = [f"## [{SYSTEMS[system]}]({system}.md)", "", "| claim | theirs | ours | verdict |", "|---|---|---|---|"]
    reasons = marks(rows)
    for r in rows:
        paper, ours = both(r)
        lines.append(f"| {r['case']}: {r['quantity']} | {paper} | {ours} | {_verdict(r, mark(r, reasons))} |")
    notes = [f"{at}. {reason}." for reason, at in reasons.items()]
    return "\n".join((*lines, "", *notes, ""))


def _verdict(r: ReproducedRow, at: str) -> str:
    if r["quantity"] in YES_OR_NO and r["paper"] == r["ours"]:
        return "the same" + (f" [{at}]" if at else "")
    off = deviation(r) if r["deviation"] and r["quantity"] not in YES_OR_NO else ""
    off += f", then {left(r)}" if r["verdict"] == "explained by a trial" else ""
    bold = "**" if r["verdict"] == "not explained" else ""
    return f"{bold}{r['verdict']}{bold}" + (f" ({off})" if off else "") + (f" [{at}]" if at else "")


def _standings(rows: dict[str, list[ReproducedRow]]) -> Iterator[str]:
    verdicts = get_args(Verdict)
    yield f"| system | {' | '.join(verdicts)} | figures |"
    yield "|---" * (len(verdicts) + 2) + "|"
    for system, some in rows.items():
        counts = [sum(r["verdict"] == verdict for r in some) for verdict in verdicts]
        yield f"| [{SYSTEMS[system]}]({system}.md) | {' | '.join(map(str, counts))} | {len(some)} |"
