"""Paired bars, the paper's above ours: a chart for each net and quantity, 480 pixels wide, so that a phone shows all of
it. Bars of one chart have one scale, since those of several nets would hide the smaller ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from minidnn.report.draw import STYLE
from minidnn.report.markup import escape, noted

Row = Mapping[str, Any]
Words = Callable[[Row], Sequence[str]]  # what stands beside a row's bars: one line or two

WIDTH, EDGE = 480, 12
LABEL, PLOT, GAP = 132, 148, 6
VALUE = EDGE + LABEL + PLOT + 2 * GAP  # where the numbers begin
ROW, LINE, BAR = 27, 15, 8
LETTERS, WHOLE, NOTE = 21, 70, 80  # of a label beside the bars, of one on lines of its own, of a line of the note
HEAD, HEADING = 24, 52  # pixels of a chart's heading, and letters of a line of it
TITLE = 38  # letters of a line of a picture's title
OPEN = ("not explained", "no figure of ours")  # verdicts in red
KEY = (("labels", "the paper"), ("feature_maps", "ours"))


@dataclass(frozen=True)
class Chart:
    """Rows of one quantity, and of one net where several rows are of one."""

    title: str
    quantity: str
    rows: tuple[tuple[str, Row], ...]  # the label of each row


def charts(rows: Iterable[Row]) -> Iterator[Chart]:
    """The charts of rows, in their order. A case before a comma is a net, if another row shares it."""
    grouped: dict[tuple[str, str, str], list[Row]] = {}
    for r in rows:
        grouped.setdefault((r["figure"], r["quantity"], r["case"].partition(", ")[0]), []).append(r)
    alone: dict[tuple[str, str], list[Row]] = {}
    for (figure, quantity, net), some in grouped.items():
        if len(some) > 1:
            yield Chart(net, quantity, tuple((_rest(r["case"]), r) for r in some))
        else:
            alone.setdefault((figure, quantity), []).extend(some)
    for (_, quantity), some in alone.items():
        yield Chart(quantity, "", tuple((r["case"], r) for r in some))


def _rest(case: str) -> str:
    return case.partition(", ")[2] or "as it is"


def drawn(chart: Chart, words: Words) -> tuple[str, int]:
    """The inside of an SVG, WIDTH pixels wide, and its height."""
    titles = wrap(chart.title, HEADING)
    out = [f'<text class="name" x="{EDGE}" y="{16 + LINE * k}">{escape(t)}</text>' for k, t in enumerate(titles)]
    if chart.quantity:
        out.append(f'<text class="soft" x="{WIDTH - EDGE}" y="16" text-anchor="end">{escape(chart.quantity)}</text>')
    most = max((abs(v) for _, r in chart.rows for v in (r["paper"], r["ours"]) if v is not None), default=0.0) or 1.0
    y = HEAD + LINE * (len(titles) - 1)
    for label, r in chart.rows:
        lines = [label] if len(label) <= LETTERS else wrap(label, WHOLE)
        beside = len(label) <= LETTERS
        for line in lines:
            out.append(f'<text x="{EDGE}" y="{y + (18 if beside else 12)}">{escape(line)}</text>')
            y += 0 if beside else LINE
        out += _bars(r, most, y)
        out += _words(r, words(r), y)
        y += ROW
    return "\n".join(out), y


def _bars(r: Row, most: float, y: float) -> Iterator[str]:
    left = EDGE + LABEL + GAP
    for (kind, whose), value, top in zip(KEY, (r["paper"], r["ours"]), (4, 4 + BAR + 2), strict=True):
        if value is not None:
            width = max(PLOT * abs(value) / most, 1)
            place = f'x="{left}" y="{y + top}" width="{width:.1f}" height="{BAR}" rx="1.5"'
            yield f'<rect class="{kind}" {place}><title>{whose}: {value:g}</title></rect>'


def _words(r: Row, lines: Sequence[str], y: float) -> Iterator[str]:
    bad = " bad" if r["verdict"] in OPEN else ""
    first = 18 if len(lines) == 1 else 12
    for k, line in enumerate(lines):
        yield f'<text class="soft{bad}" x="{VALUE}" y="{y + first + 12 * k}">{escape(line)}</text>'


def key(x: float, y: float) -> str:
    """What the colours mean, as SVG."""
    out = []
    for kind, words in KEY:
        out.append(f'<rect class="{kind}" x="{x}" y="{y}" width="11" height="9" rx="1.5"/>')
        out.append(f'<text class="soft" x="{x + 17}" y="{y + 9}">{words}</text>')
        x += 40 + 6 * len(words)
    return "".join(out)


def svg(inside: str, width: float, height: float, frame: str = "") -> str:
    """An element. frame: attributes besides those of every picture"""
    return f'<svg class="mini" {frame} viewBox="0 0 {width} {height}" role="img">{inside}</svg>'


def picture(rows: Sequence[Row], title: str, note: str, words: Words) -> str:
    """An SVG file: all charts below each other."""
    y = 6
    parts = []
    for line in wrap(title, TITLE):
        y += 22
        parts.append(f'<text class="head" x="{EDGE}" y="{y}">{escape(line)}</text>')
    text, more = noted(note, EDGE, y + 20, NOTE)
    parts += [text, key(EDGE, y + 32 + more)]
    y += 56 + more
    for chart in charts(rows):
        inside, height = drawn(chart, words)
        parts.append(f'<g transform="translate(0 {y})">{inside}</g>')
        y += height + 10
    frame = f'xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}"'
    paper = f'<style>{STYLE}</style><rect class="paper" width="{WIDTH}" height="{y}" rx="8"/>'
    return svg("\n".join((paper, *parts)), WIDTH, y, frame) + "\n"
