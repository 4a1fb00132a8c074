"""The arena as a map: offset against time, a rectangle for each tensor's residency, coloured by what the tensor is for.

The SVG needs no script: a browser shows an element's <title> under the pointer. On the page a small script (arena.js)
reads the same titles, so that the keyboard and a search find tensors, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from minidnn import sizes
from minidnn.memory.execution.lives import Life, busy_spans, lives, shared
from minidnn.memory.moment import ROLES as KINDS
from minidnn.memory.schedule import Buffer
from minidnn.report.draw import LEFT, PLOT, RIGHT, ROLES, STYLE, WIDTH, byte_ticks, legend, ticks
from minidnn.report.markup import escape, noted
from minidnn.report.page import key
from minidnn.report.page import page as framed
from minidnn.report.step import Step
from minidnn.report.table import duration

SCRIPT = Path(__file__).with_name("arena.js").read_text(encoding="utf-8")
OWN_STYLE = Path(__file__).with_name("arena.css").read_text(encoding="utf-8")
HEAD, HEIGHT, BELOW = 46, 400, 40  # pixels of a map's heading, of the map, and of the axis below it
LEAST = 0.001  # pixels: what is narrower or lower is drawn so
HELD = "held", "held, with no tensor in it"


class Scale:
    """Turns seconds and bytes into pixels, in the same way for every map of one picture."""

    def __init__(self, steps: Sequence[Step], budget: int | None) -> None:
        self.seconds = max((s.trace.seconds for s in steps), default=0.0) or 1.0
        most = max((s.schedule.arena for s in steps), default=0) or 1
        self.bytes = (budget if budget is not None and most < budget <= 2 * most else most) * 1.03

    def x(self, seconds: float) -> float:
        return LEFT + PLOT * seconds / self.seconds

    def y(self, nbytes: float) -> float:
        return HEIGHT * (1 - nbytes / self.bytes)


def picture(steps: Sequence[Step], budget: int | None, heading: str, notes: str) -> str:
    """One SVG file with a map for each step, one below the other. They share one scale.

    budget: bytes that are allowed; None: no line. notes: where the seconds come from"""
    scale, result = Scale(steps, budget), [lives(s.schedule, s.trace) for s in steps]
    note, more = noted(notes, LEFT)
    words, extra = legend(_kinds(steps, result), LEFT, 62 + more)
    head = f'<text class="head" x="{LEFT}" y="30">{escape(heading)}</text>{note}'
    top = 62 + more + extra + 4
    drawn = [
        f'<g transform="translate(0 {top + i * (HEAD + HEIGHT + BELOW)})">{_map(s, each, scale, budget)}</g>'
        for i, (s, each) in enumerate(zip(steps, result, strict=True))
    ]
    height = top + len(steps) * (HEAD + HEIGHT + BELOW)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mini arena" viewBox="0 0 {WIDTH} {height:g}" '
        f'width="{WIDTH}" height="{height:g}" role="img">\n<style>{STYLE}{OWN_STYLE}</style>\n'
        f'<rect class="paper" width="{WIDTH}" height="{height:g}" rx="8"/>\n{head}{words}\n'
        + "\n".join(drawn)
        + "</svg>\n"
    )


def page(steps: Sequence[Step], budget: int | None, heading: str, notes: str, version: str) -> str:
    """An HTML page with a section for each step. It loads nothing."""
    scale, result = Scale(steps, budget), [lives(s.schedule, s.trace) for s in steps]
    body = [
        f'<p class="dim">{escape(notes)}</p>',
        '<p class="says">Each rectangle is a tensor at its place in the arena, from the moment when its bytes are '
        "taken until they are free. Point at one for its name.</p>",
        key(_kinds(steps, result)),
    ]
    for s, each in zip(steps, result, strict=True):
        height = HEAD + HEIGHT + BELOW
        drawn = _map(s, each, scale, budget, False)
        label = f"Arena of {escape(s.policy)}"
        body.append(
            f'<section><h2>{escape(s.policy)}</h2><p class="dim">{escape(_facts(s))}</p>\n<div class="scroll">'
            f'<svg class="mini arena" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}">\n{drawn}\n'
            "</svg></div></section>"
        )
    body.append(f"<script>{SCRIPT}</script>")
    footer = f"Made by minidnn {escape(version)}. Sizes are binary: 1 GiB is 1024 MiB."
    return framed(f"{heading}: the arena", "\n".join(body), footer, OWN_STYLE)


def _kinds(steps: Sequence[Step], maps: Sequence[Sequence[Life]]) -> list[tuple[str, str]]:
    """The legend: a class, and its words."""
    present = {KINDS[life.tensor.role] for each in maps for life in each}
    held = [HELD] if any(_empty(s) for s in steps) else []
    return [(kind, word) for kind, word in ROLES.items() if kind in present] + held


def _facts(s: Step) -> str:
    """The numbers in the map's heading."""
    schedule = s.schedule
    over = f", {schedule.arena / schedule.live_peak - 1:.1%} over its live peak" if schedule.live_peak else ""
    return f"arena {sizes.text(schedule.arena)}{over} · step of {duration(s.trace.seconds)}, {s.how}"


def _map(s: Step, lives: Sequence[Life], scale: Scale, budget: int | None, titled: bool = True) -> str:
    """One map as SVG. titled: whether it has a heading of its own"""
    heading = (
        f'<text x="{LEFT}" y="18"><tspan class="name" font-size="14" font-weight="650">{escape(s.policy)}</tspan>'
        f'<tspan dx="12" fill="var(--soft)">{escape(_facts(s))}</tspan></text>'
    )
    out = [heading] if titled else []
    out.append(f'<g transform="translate(0 {HEAD})">')
    end = scale.x(s.trace.seconds)
    width, high = end - LEFT, scale.y(s.schedule.arena)
    out.append(f'<rect class="whole" x="{LEFT}" y="{high:.1f}" width="{width:.1f}" height="{HEIGHT - high:.1f}"/>')
    for value in byte_ticks(scale.bytes):
        y = scale.y(value)
        out.append(f'<line class="axis" x1="{LEFT - 4}" x2="{LEFT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = sizes.text(value) if value else "0"
        out.append(f'<text class="soft" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    out += [_held(b.nbytes, s.schedule.offset[b], *when, scale) for b, when in _empty(s)]
    out.append('<g class="lives">')
    out += [_rectangle(life, scale) for life in lives]
    out.append("</g>")
    at, most = max(s.trace.memory, key=lambda m: m[1])
    x = scale.x(at)
    out.append(f'<line class="peak" x1="{x:.1f}" x2="{x:.1f}" y1="-4" y2="{HEIGHT}"/>')
    anchor, dx = ("end", -5) if x > LEFT + PLOT / 2 else ("start", 5)
    text = f"peak of live bytes: {sizes.text(most)}"
    out.append(f'<text class="soft over" x="{x + dx:.1f}" y="-8" text-anchor="{anchor}">{text}</text>')
    if budget is not None and budget <= scale.bytes:
        y = scale.y(budget)
        out.append(f'<line class="budget" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(
            f'<text class="soft bad over" x="{WIDTH - RIGHT}" y="{y - 5:.1f}" text-anchor="end">'
            f"budget {sizes.text(budget)}</text>"
        )
    out.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT}" y2="{HEIGHT}"/>')
    for value in ticks(scale.seconds, 7):
        x, label = scale.x(value), duration(value) if value else "0"
        out.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT}" y2="{HEIGHT + 4}"/>')
        out.append(f'<text class="soft" x="{x:.1f}" y="{HEIGHT + 17}" text-anchor="middle">{label}</text>')
    return "\n".join((*out, "</g>"))


def _empty(s: Step) -> list[tuple[Buffer, tuple[float, float]]]:
    """The buffers that may be taken and hold no tensor, with the seconds between which they are taken."""
    return [(b, when) for b, when in busy_spans(s.schedule, s.trace).items() if shared(b)]


def _held(nbytes: int, offset: int, start: float, end: float, scale: Scale) -> str:
    return f'<rect class="{HELD[0]}" {_place(nbytes, offset, start, end, scale)}/>'


def _rectangle(life: Life, scale: Scale) -> str:
    kind = KINDS[life.tensor.role]
    place = _place(life.nbytes, life.offset, life.start, life.end, scale)
    return f'<rect class="{kind}" {place}><title>{escape(description(life))}</title></rect>'


def _place(nbytes: int, offset: int, start: float, end: float, scale: Scale) -> str:
    """Attributes of a rectangle, with half a pixel between neighbours where they are large enough."""
    w = max(PLOT * (end - start) / scale.seconds, LEAST)
    h = max(HEIGHT * nbytes / scale.bytes, LEAST)
    y = scale.y(offset) - h
    w, h = (v - 0.5 if v > 2.5 else v for v in (w, h))
    return f'x="{scale.x(start):.1f}" y="{y:.1f}" width="{w:.4g}" height="{h:.4g}"'


def description(life: Life) -> str:
    """A residency in words."""
    kind = ROLES[KINDS[life.tensor.role]]
    until = f"from {duration(life.start) if life.start else '0'} to {duration(life.end)}"
    return f"{life.tensor.name}: {kind}, {sizes.text(life.nbytes)} at byte {life.offset:,}, {until}"
