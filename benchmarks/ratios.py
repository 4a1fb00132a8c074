"""A chart of ratios: one or more bars per row, goals as lines, in one SVG file in the style of report/draw.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from minidnn.report.draw import LEFT, RIGHT, STYLE, WIDTH, ticks

NAMES, ROW, THICK, TOP, WORDS = (
    250,
    30,
    10,
    92,
    90,
)  # pixels: of names, rows, bars, the head, texts after bars
LARGEST = 2.0  # the bar of a larger ratio is cut off here; its text gives the ratio


@dataclass(frozen=True)
class Bar:
    """One ratio, drawn as a bar."""

    kind: str  # a class of report/draw.css, for its colour
    ratio: float
    text: str  # drawn to the right of the bar
    title: str  # shown by a browser under the pointer
    goal: float | None = None  # the ratio that is to be reached, drawn as a line across the bar


@dataclass(frozen=True)
class Row:
    name: str
    bars: tuple[Bar, ...]


def picture(
    heading: str, note: str, key: Sequence[tuple[str, str]], rows: Sequence[Row], lines: Sequence[float] = (1.0,)
) -> str:
    """The chart as an SVG file. key: the legend's (kind, words). lines: goals drawn through all rows."""
    top = min(LARGEST, max([1.1, *(b.ratio for row in rows for b in row.bars)]))
    plot = WIDTH - LEFT - RIGHT - NAMES - WORDS
    tops = [TOP]
    for row in rows:
        tops.append(tops[-1] + max(ROW, 6 + 12 * len(row.bars)))
    bottom = tops[-1]

    def x(ratio: float) -> float:
        return LEFT + NAMES + plot * min(ratio, top) / top

    out = [
        f'<text class="head" x="{LEFT}" y="30">{escape(heading)}</text>',
        f'<text class="soft" x="{LEFT}" y="49">{escape(note)}</text>',
    ]
    at = LEFT
    for kind, words in key:
        out.append(f'<rect class="{kind}" x="{at}" y="62" width="11" height="11" rx="2"/>')
        out.append(f'<text class="soft" x="{at + 17}" y="72">{escape(words)}</text>')
        at += max(190, 30 + round(6.2 * len(words)))
    for value in ticks(top):
        out.append(f'<line class="grid" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{TOP - 6}" y2="{bottom}"/>')
        out.append(f'<text class="soft" x="{x(value):.1f}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>')
    words = []
    for row, y in zip(rows, tops, strict=False):
        words.append(f'<text x="{LEFT + NAMES - 10}" y="{y + 16}" text-anchor="end">{escape(row.name)}</text>')
        for i, bar in enumerate(row.bars):
            level, start, end = y + 12 * i, x(0), x(bar.ratio)
            out.append(
                f'<rect class="{bar.kind}" x="{start:.1f}" y="{level}" width="{max(end - start, 0.5):.1f}" '
                f'height="{THICK}" rx="2"><title>{escape(bar.title)}</title></rect>'
            )
            if bar.goal is not None:
                g = x(bar.goal)
                out.append(f'<path d="M{g:.1f} {level - 1}v{THICK + 2}" style="stroke:var(--ink);stroke-width:2"/>')
                if end < g + 2 and g < end + 12 + 6 * len(bar.text):
                    end = g  # move the text right of the goal's line, which would cross it
            words.append(f'<text class="soft over" x="{end + 6:.1f}" y="{level + 9}">{escape(bar.text)}</text>')
    for line in lines:
        out.append(f'<line class="budget" x1="{x(line):.1f}" x2="{x(line):.1f}" y1="{TOP - 6}" y2="{bottom}"/>')
    out += words
    height = bottom + 30
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mini" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img">\n<style>{STYLE}</style>\n<rect class="paper" width="{WIDTH}" '
        f'height="{height}" rx="8"/>\n' + "\n".join(out) + "\n</svg>\n"
    )
