"""A plot of seconds against bytes, as an SVG file: axes, a legend, lines that fall in steps, points with a title."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import cycle, pairwise

from minidnn.report import palette
from minidnn.report.draw import NARROW, STYLE, WIDTH, byte_axis, ticks
from minidnn.report.markup import escape, noted
from minidnn.report.table import duration

LEFT, RIGHT, TOP, HEIGHT, BELOW = 90, 40, 86, 330, 52
LEGEND = 18  # pixels of a line of the legend
HEAD = 60  # pixels of the title and of the note

Point = tuple[float, float]  # bytes, seconds


def coloured(policies: Iterable[str]) -> dict[str, str]:
    """The colour of each policy: its own, or one of those that are left; when none is left, they repeat."""
    every = list(dict.fromkeys(policies))
    own = {name: palette.policy(name) for name in every}
    left = cycle([name for name in palette.POLICIES if name not in own.values()] or palette.POLICIES)
    return {name: f"p-{own[name] or next(left)}" for name in every}


class Plot:
    """One plot. Without a title it is part of a page that describes it.

    across, up: the first and the last bytes, the least and the most seconds; what takes longer is drawn at the top
    names:      {name: colour}, the legend
    wide:       pixels; NARROW ones can be read on a phone

    A plot of other quantities overrides x, reads, marks and caption.
    """

    caption = "bytes of the arena"

    def __init__(
        self, title: str, note: str, across: Point, up: Point, names: dict[str, str], wide: int = WIDTH
    ) -> None:
        self.across, self.up, self.wide = across, up, wide
        self.left, self.right = (LEFT, wide - RIGHT) if wide > NARROW else (LEFT - 22, wide - RIGHT // 2)
        text, more = noted(note, self.left)
        self.head = -more if title else HEAD
        self.elements = [f'<text class="head" x="{self.left}" y="30">{escape(title)}</text>', text] if title else []
        self.top = TOP - self.head + LEGEND * self._legend(names)
        self.bottom = self.top + HEIGHT
        self._axes()

    def x(self, nbytes: float) -> float:
        first, last = self.across
        return self.left + (self.right - self.left) * (nbytes - first) / (last - first)

    def y(self, seconds: float) -> float:
        least, most = self.up
        return self.top + HEIGHT * (1 - (min(seconds, most) - least) / (most - least))

    def _legend(self, names: dict[str, str]) -> int:
        """Draw it; its number of lines."""
        at, line = self.left, 0
        for name, colour in names.items():
            width = 40 + round(6.6 * len(name))
            if at + width > self.right and at > self.left:
                at, line = self.left, line + 1
            y = 64 - self.head + LEGEND * line
            self.elements.append(f'<rect x="{at}" y="{y}" width="11" height="11" rx="2" fill="var(--{colour})"/>')
            self.elements.append(f'<text class="soft" x="{at + 17}" y="{y + 10}">{escape(name)}</text>')
            at += width
        return line + 1

    def _axes(self) -> None:
        least, most = self.up
        start, end, bottom, draw = self.left, self.right, self.bottom, self.elements.append
        step = ticks(most - least, 6)[1]
        for value in (k * step for k in range(math.ceil(least / step), math.floor(most / step) + 1)):
            y = self.y(value)
            draw(f'<line class="grid" x1="{start}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}"/>')
            label = self.reads(value) if value else "0"
            draw(f'<text class="soft" x="{start - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        self.elements += self.marks()
        draw(f'<line class="axis" x1="{start}" x2="{end}" y1="{bottom}" y2="{bottom}"/>')
        draw(f'<text class="soft" x="{end}" y="{bottom + 36}" text-anchor="end">{self.caption}</text>')

    def reads(self, value: float) -> str:
        """The label of a value on the axis up."""
        return duration(value)

    def marks(self) -> list[str]:
        """The elements of the axis across."""
        return byte_axis(*self.across, self.x, self.bottom, 8 if self.wide > NARROW else 4)

    def steps(self, points: Sequence[Point], colour: str, width: float) -> None:
        """A line that stays at a point's seconds up to the bytes of the next."""
        path = f"M{self.x(points[0][0]):.1f} {self.y(points[0][1]):.1f}"
        for (_, before), (nbytes, seconds) in pairwise(points):
            path += f"L{self.x(nbytes):.1f} {self.y(before):.1f}V{self.y(seconds):.1f}"
        path += f"H{self.right}"
        self.elements.append(f'<path d="{path}" fill="none" stroke="var(--{colour})" stroke-width="{width}"/>')

    def point(self, at: Point, colour: str, label: str, hollow: bool = False) -> None:
        """A point; `said` is shown under the pointer."""
        filled = f'fill="var(--{colour})"'
        look = f'fill="var(--paper)" stroke="var(--{colour})" stroke-width="1.4"' if hollow else filled
        place = f'cx="{self.x(at[0]):.1f}" cy="{self.y(at[1]):.1f}" r="{4.5 if hollow else 3.8}"'
        self.elements.append(f"<circle {place} {look}><title>{escape(label)}</title></circle>")

    def interval(self, nbytes: float, between: tuple[float, float], colour: str) -> None:
        """A line through a point, as long as the interval of its seconds."""
        x, (low, high) = self.x(nbytes), (self.y(v) for v in between)
        place = f'x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"'
        self.elements.append(f'<line {place} stroke="var(--{colour})" stroke-width="1.6"/>')

    def limit(self, nbytes: float, label: str) -> None:
        """A line up at so many bytes, with a word; nothing if it lies outside."""
        if self.across[0] <= nbytes <= self.across[1]:
            x = self.x(nbytes)
            self.elements.append(f'<line class="budget" x1="{x:.1f}" x2="{x:.1f}" y1="{self.top}" y2="{self.bottom}"/>')
            place = f'x="{x - 5:.1f}" y="{self.top + 10}" text-anchor="end"'
            self.elements.append(f'<text class="soft bad over" {place}>{escape(label)}</text>')

    def floor(self, edge: Sequence[Point], label: str) -> None:
        """The area below a line, shaded, and the line dashed."""
        line = "".join(f"L{self.x(b):.1f} {self.y(s):.1f}" for b, s in edge)
        area = f"M{self.x(edge[0][0]):.1f} {self.bottom}{line}V{self.bottom}Z"
        shade = f'fill="var(--soft)" fill-opacity="0.18"><title>{escape(label)}</title></path>'
        self.elements.append(f'<path d="{area}" {shade}')
        dashed = 'fill="none" stroke="var(--soft)" stroke-width="1.4" stroke-dasharray="5 3"'
        self.elements.append(f'<path d="M{line[1:]}" {dashed}/>')

    def svg(self, label: str = "") -> str:
        """The whole file. label: the description for screen readers"""
        height = self.bottom + BELOW
        size = f'width="{self.wide}" height="{height}"'
        frame = f'xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {self.wide} {height}"'
        head = f'<style>{STYLE}</style><rect class="paper" {size} rx="8"/>'
        body = "\n".join(self.elements)
        named = f' aria-label="{escape(label)}"' if label else ""
        return f'<svg class="mini" {frame} role="img"{named}>{head}\n{body}\n</svg>\n'
