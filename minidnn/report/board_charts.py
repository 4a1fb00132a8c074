"""The board as small pictures: for each net on a GPU, a step's time over the bound against the budget.

The height of a point grows with the logarithm of 1 + 50 times the part beyond the bound: so 1 % and 100 % can both be
seen. A line ends where its policy is refused; above stands how many are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from minidnn.memory.policies import BUDGETED
from minidnn.report import palette
from minidnn.report.board import budget, budgets, cell_sentence, named, of
from minidnn.report.draw import STYLE
from minidnn.report.markup import escape, noted
from minidnn.report.plot import coloured

Row = Mapping[str, Any]

WIDTH, HEIGHT = 340, 236  # of one picture
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 34, 30
GAPS = (0.0, 0.02, 0.1, 0.3, 1.0, 3.0, 10.0)
FINE = 0.02  # the part beyond the bound up to which heights grow nearly evenly
COLUMNS = 3  # of a picture with all of them
HEAD, LEGEND = 64, 20  # pixels of its title, and of a line of its legend
LETTER = 6.8  # pixels of a letter of its note, about

SAYS = "Time over the bound against the budget; in red: the number of refused policies."
DASHES = ("", "6 3", "2 3")


def looks(policies: Sequence[str]) -> dict[str, tuple[str, str]]:
    """{policy: its colour, and its dashes}: a colour that another has, too, is dashed."""
    seen: dict[str, int] = {}
    result = {}
    for policy, colour in coloured(policies).items():
        own = palette.policy(policy) is not None
        number = seen.get(colour, 0) if own else seen.get(colour, 1)
        result[policy] = colour, DASHES[min(number, len(DASHES) - 1)]
        seen[colour] = number + 1
    return result


def height(gap: float, most: float) -> float:
    """The part of the picture's height, from 0 to 1, at which this part beyond the bound is drawn."""
    return math.log1p(max(gap, 0.0) / FINE) / math.log1p(most / FINE)


def chart(contest: Row, rows: Sequence[Row], look: Mapping[str, tuple[str, str]]) -> str:
    """One picture, as the inside of an SVG of WIDTH by HEIGHT."""
    columns = budgets(rows)
    shown = [r for r in rows if r["gap"] is not None]
    most = min(max([0.1, *(1.1 * r["gap"] for r in shown)]), GAPS[-1])
    first, last = (columns[-1][0], columns[0][0]) if columns else (0, 1)
    bottom = HEIGHT - BOTTOM

    def x(nbytes: int) -> float:
        return LEFT + 8 + (WIDTH - LEFT - RIGHT - 16) * ((nbytes - first) / (last - first) if last > first else 0.5)

    def y(gap: float) -> float:
        return bottom - (bottom - TOP - 8) * height(min(gap, most), most)

    out = [f'<text class="name" x="4" y="14">{escape(named(contest))}</text>']
    for gap in GAPS:
        if gap <= most:
            out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(gap):.1f}" y2="{y(gap):.1f}"/>')
            place = f'x="{LEFT - 6}" y="{y(gap) + 4:.1f}" text-anchor="end"'
            out.append(f'<text class="soft" {place}>{100 * gap:g} %</text>')
    for b in columns:
        out.append(f'<text class="soft" x="{x(b[0]):.1f}" y="{bottom + 17}" text-anchor="middle">{budget(b)}</text>')
        refused = sum(not r["fits"] and not r["failed"] for r in rows if r["budget_bytes"] == b[0])
        if refused:
            words = f"{refused} of {sum(r['budget_bytes'] == b[0] for r in rows)} policies are refused"
            place = f'x="{x(b[0]):.1f}" y="{TOP - 4}" text-anchor="middle"'
            out.append(f'<text class="soft bad" {place}>{refused}×<title>{escape(words)}</title></text>')
    out.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    for policy in sorted(look, key=lambda name: name == BUDGETED):
        colour, dashes = look[policy]
        mine = sorted((r for r in shown if r["policy"] == policy), key=lambda r: r["budget_bytes"])
        if not mine:
            continue
        width = 2.6 if policy == BUDGETED else 1.5
        path = "L".join(f"{x(r['budget_bytes']):.1f} {y(r['gap']):.1f}" for r in mine)
        drawn = f'<path d="M{path}" fill="none" stroke="var(--{colour})" stroke-width="{width}"'
        drawn += f' stroke-dasharray="{dashes}"/>' if dashes else "/>"
        for r in mine:
            place = f'cx="{x(r["budget_bytes"]):.1f}" cy="{y(r["gap"]):.1f}" r="{width + 1.2:.1f}"'
            drawn += f'<circle {place} fill="var(--{colour})"><title>{escape(cell_sentence(r))}</title></circle>'
        out.append(f'<g class="line" data-policy="{escape(policy)}">{drawn}</g>')
    if not shown:
        out.append(f'<text class="soft" x="{LEFT + 8}" y="{(TOP + bottom) / 2:.0f}">no plan within any budget</text>')
    return "\n".join(out)


def picture(document: Mapping[str, Any], title: str, note: str) -> str:
    """All pictures in one SVG file, below a legend."""
    look = looks([s["policy"] for s in document["standings"]])
    contests = document["contests"]
    columns = max(1, min(COLUMNS, len(contests)))
    wide = max(columns * WIDTH, 2 * WIDTH) + 20
    out = [
        f'<text class="head" x="14" y="28">{escape(title)}</text>',
        f'<text class="soft" x="14" y="46">{SAYS}</text>',
    ]
    at, line = 14, 0
    for policy, (colour, dashes) in look.items():
        width = 44 + round(6.6 * len(policy))
        if at + width > wide - 14 and at > 14:
            at, line = 14, line + 1
        out.append(f'<g transform="translate({at} {HEAD + LEGEND * line})">{key(colour, dashes)}')
        out.append(f'<text class="soft" x="26" y="4">{escape(policy)}</text></g>')
        at += width
    top = HEAD + LEGEND * (line + 1)
    for number, contest in enumerate(contests):
        place = f"translate({10 + WIDTH * (number % columns)} {top + HEIGHT * (number // columns)})"
        out.append(f'<g transform="{place}">{chart(contest, of(document, contest), look)}</g>')
    high = top + HEIGHT * math.ceil(len(contests) / columns) + 22
    text, more = noted(note, 14, high - 10, int(wide / LETTER))
    out.append(text)
    high += more
    frame = f'xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}"'
    head = f'<style>{STYLE}</style><rect class="paper" width="{wide}" height="{high}" rx="8"/>'
    body = "\n".join(out)
    return f'<svg class="mini" {frame} role="img">{head}\n{body}\n</svg>\n'


def key(colour: str, dashes: str) -> str:
    """A policy's line in a legend, 20 pixels wide."""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    line = f'<line x1="0" x2="20" y1="0" y2="0" stroke="var(--{colour})" stroke-width="2.4"{dashed}/>'
    return f'{line}<circle cx="10" cy="0" r="3.2" fill="var(--{colour})"/>'
