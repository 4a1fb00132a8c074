"""Panels as SVG: a curve of bytes over time, and below it a lane per stream. All policies share one scale.

The SVG needs no script and loads nothing: a browser shows an element's <title> (a name and numbers) under the pointer.
Colours are CSS classes (`STYLE`), so that one drawing suits a light and a dark page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from minidnn import sizes
from minidnn.report.markup import escape, noted
from minidnn.report.palette import of_pictures
from minidnn.report.panel import KINDS, LANES, Bar, Panel
from minidnn.report.table import duration

WIDTH, NARROW = 1080, 480  # pixels of a picture, and of one that can be read on a phone
LEFT, RIGHT = 74, 18  # pixels to the left and to the right of the plot
PLOT = WIDTH - LEFT - RIGHT
HEAD, HEIGHT = 42, 132  # pixels of a panel's heading, and of its curve of bytes
LANE, GAP = 13, 4  # pixels of a lane, and between two lanes
ROLES = {
    "weights": "weights",
    "weight_gradients": "weight gradients",
    "optimizer_state": "optimizer state",
    "feature_maps": "feature maps",
    "gradients": "gradient maps",
    "extra": "kept for backward",
    "workspace": "workspace",
    "labels": "labels",
}

STYLE = of_pictures() + Path(__file__).with_name("draw.css").read_text(encoding="utf-8")


def ticks(top: float, about: int = 6) -> list[float]:
    """About `about` round values from 0 to `top`, in steps of 1, 2 or 5 times a power of ten."""
    if top <= 0:
        return [0.0]
    power = math.floor(math.log10(top))
    steps = [part * 10.0**e for e in (power - 1, power) for part in (1, 2, 5)]
    step = min(steps, key=lambda s: abs(math.log(top / s / about)))
    return [i * step for i in range(int(top / step + 1e-9) + 1)]


def byte_ticks(top: float, about: int = 4) -> list[float]:
    """About `about` numbers of bytes from 0 to `top` that are round in KiB, MiB or GiB, as suits `top`."""
    unit = 1.0
    while top / unit >= 1024:
        unit *= 1024
    return [v * unit for v in ticks(top / unit, about)]


def byte_axis(first: float, last: float, x: Callable[[float], float], bottom: float, about: int = 8) -> list[str]:
    """An axis of bytes from `first` to `last`, with `about` marks, at the pixel `bottom`. `x` maps bytes to pixels."""
    unit = 1024.0 ** math.floor(math.log(last, 1024))
    step = ticks((last - first) / unit, about)[1] * unit
    values = (k * step for k in range(math.ceil(first / step), math.floor(last / step) + 1))
    return axis({value: sizes.text(int(value)) for value in values}, x, bottom)


def axis(labels: Mapping[float, str], x: Callable[[float], float], bottom: float) -> list[str]:
    """The marks of an axis across, at the pixel `bottom`. labels: {value: its label}; `x` maps values to pixels."""
    out = []
    for value, label in labels.items():
        out.append(f'<line class="axis" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        out.append(f'<text class="soft" x="{x(value):.1f}" y="{bottom + 17}" text-anchor="middle">{label}</text>')
    return out


class Scale:
    """Turns seconds and bytes into pixels, in the same way for every panel of one picture."""

    def __init__(self, panels: Sequence[Panel], budget: int | None) -> None:
        self.seconds = max((p.seconds for p in panels), default=0.0) or 1.0
        most = max((b for p in panels for _, b in p.memory), default=0) or 1
        self.bytes = max(most, min(budget or 0, 4 * most)) * 1.06

    def x(self, seconds: float) -> float:
        return LEFT + PLOT * seconds / self.seconds

    def y(self, nbytes: float) -> float:
        return HEIGHT * (1 - nbytes / self.bytes)


def steps(memory: Sequence[tuple[float, int]], seconds: float, scale: Scale) -> str:
    """A curve of bytes over time as an SVG path: per half pixel its first, highest, lowest and last value, so that no
    peak is lost."""
    columns: dict[int, list[float]] = {}  # half pixel -> first, highest, lowest, last
    for at, nbytes in memory:
        y = scale.y(nbytes)
        column = round(scale.x(at) * 2)
        seen = columns.setdefault(column, [y, y, y, y])
        seen[1], seen[2], seen[3] = min(seen[1], y), max(seen[2], y), y
    path: list[str] = []
    for column, (first, high, low, last) in columns.items():
        if not path:
            path.append(f"M{column / 2:g} {first:.1f}")
        else:
            path.append(f"H{column / 2:g}")
        path += [f"V{y:.1f}" for y in dict.fromkeys((first, high, low, last))]
    path.append(f"H{scale.x(seconds):.1f}")
    return "".join(path)


def merged(bars: Iterable[Bar], scale: Scale) -> list[tuple[Bar, int]]:
    """(bar, number of ops that it shows): neighbours of one kind that are too narrow to be seen are joined."""
    result: list[tuple[Bar, int]] = []
    least = 1.2 * scale.seconds / PLOT
    for bar in bars:
        if result:
            last, n = result[-1]
            small = bar.end - bar.start < least and (n > 1 or last.end - last.start < least)
            if small and bar.kind == last.kind and bar.start - last.end < least / 2:
                name = f"{last.name.split(' … ')[0]} … {bar.name}"
                result[-1] = (Bar(bar.lane, bar.kind, name, last.start, bar.end), n + 1)
                continue
        result.append((bar, 1))
    return result


def panel_height(p: Panel) -> int:
    return HEAD + HEIGHT + 10 + len(p.lanes) * (LANE + GAP) + 34


def draw_panel(p: Panel, scale: Scale, budget: int | None, base: Panel | None, top: float, axis: bool = True) -> str:
    """One policy's panel as SVG: a heading, bytes over time, a lane per stream, and a time axis if `axis`.

    base: the panel whose curve is drawn dashed, for comparison. top: y of the panel's upper edge, in pixels."""
    refused = not p.row.get("fits", True)
    out = [f'<g transform="translate(0 {top:g})">', *_heading(p, refused, p is base)]
    out.append(f'<g transform="translate(0 {HEAD})" class="{"refused" if refused else "kept"}">')
    for value in byte_ticks(scale.bytes):
        y = scale.y(value)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = sizes.text(value) if value else "0"
        out.append(f'<text class="soft" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_short(label)}</text>')
    bottom = HEIGHT + 10 + len(p.lanes) * (LANE + GAP)
    out += _names(p)
    out.append('<g class="moving">')
    if p.turn is not None:
        x = scale.x(p.turn)
        out.append(f'<line class="turn" x1="{x:.1f}" x2="{x:.1f}" y1="-11" y2="{bottom}"/>')
        out.append(f'<text class="soft" x="{x - 6:.1f}" y="-4" text-anchor="end">forward</text>')
        out.append(f'<text class="soft" x="{x + 6:.1f}" y="-4">backward</text>')
    path = steps(p.memory, p.seconds, scale)
    start = f"{scale.x(0):g} {HEIGHT}"
    out.append(f'<path class="area" d="M{start}L{path[1:]}V{HEIGHT}Z"/>')
    out.append(f'<path class="curve" d="{path}"><title>{escape(_peak(p))}</title></path>')
    if base is not None and base is not p:
        out.append(f'<path class="base" d="{steps(base.memory, base.seconds, scale)}"><title>baseline</title></path>')
    out += _bars(p, scale)
    if axis:
        out += _time_axis(scale, bottom)
    out.append("</g>")
    if budget is not None and budget <= scale.bytes:
        y = scale.y(budget)
        out.append(f'<line class="budget" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(
            f'<text class="soft bad over" x="{WIDTH - RIGHT}" y="{y - 5:.1f}" text-anchor="end">'
            f"budget {escape(sizes.text(budget))}</text>"
        )
    out.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT}" y2="{HEIGHT}"/>')
    return "\n".join((*out, "</g></g>"))


def _time_axis(scale: Scale, bottom: float) -> list[str]:
    out = []
    for value in ticks(scale.seconds, 7):
        x = scale.x(value)
        label = _short(duration(value)) if value else "0"
        out.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom - 2}" y2="{bottom + 2}"/>')
        out.append(f'<text class="soft" x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{label}</text>')
    return out


def _heading(p: Panel, refused: bool, measure: bool = False) -> list[str]:
    """The policy's name, and its memory, traffic and time in a line. measure: True for the baseline itself, which is
    not compared with itself."""
    facts = [f"peak {sizes.text(p.row['peak_bytes'])}"]
    if p.row.get("offload_bytes"):
        facts.append(f"{sizes.text(p.row['offload_bytes'])} out")
    if p.row.get("recomputed_ops"):
        facts.append(f"{p.row['recomputed_ops']} ops again")
    facts.append(duration(p.row["step_seconds"]))
    if p.row.get("slowdown") is not None and not measure:
        facts.append(f"{p.row['slowdown']:.2f}× baseline's time")
    if p.row.get("stall_seconds"):
        facts.append(f"{duration(p.row['stall_seconds'])} stalled")
    if p.row.get("identical") and not measure:
        facts.append("weights byte-equal to baseline's")
    verdict = '<tspan class="bad" fill="var(--bad)" dx="10" font-weight="600">refused</tspan>' if refused else ""
    return [
        f'<text x="{LEFT}" y="18"><tspan font-size="14" font-weight="650">{escape(p.policy)}</tspan>{verdict}'
        f'<tspan dx="12" fill="var(--soft)">{escape(" · ".join(facts))}</tspan></text>'
    ]


def _names(p: Panel) -> list[str]:
    """The names of the lanes."""
    out = []
    for i, lane in enumerate(p.lanes):
        y = HEIGHT + 10 + i * (LANE + GAP)
        out.append(f'<text class="soft" x="{LEFT - 8}" y="{y + LANE - 3}" text-anchor="end">{LANES[lane]}</text>')
    return out


def _bars(p: Panel, scale: Scale) -> list[str]:
    out = []
    for i, lane in enumerate(p.lanes):
        y = HEIGHT + 10 + i * (LANE + GAP)
        width = PLOT * p.seconds / scale.seconds
        out.append(f'<rect class="lane" x="{LEFT}" y="{y}" width="{width:.1f}" height="{LANE}"/>')
        if lane == "compute":
            for a, b in p.stalls:
                w = PLOT * (b - a) / scale.seconds
                if w >= 0.4:
                    out.append(
                        f'<rect class="stall" x="{scale.x(a):.1f}" y="{y}" width="{w:.1f}" height="{LANE}">'
                        f"<title>stalled for {duration(b - a)}</title></rect>"
                    )
        for bar, n in merged((b for b in p.bars if b.lane == lane), scale):
            w = max(PLOT * (bar.end - bar.start) / scale.seconds, 0.35)
            gap = 0.5 if w > 2.5 else 0.0  # half a pixel between neighbours, so that single ops can be seen
            many = f" ({n} ops)" if n > 1 else ""
            out.append(
                f'<rect class="{bar.kind}" x="{scale.x(bar.start):.2f}" y="{y}" width="{w - gap:.2f}" height="{LANE}">'
                f"<title>{escape(bar.name)}{many}: {duration(bar.end - bar.start)}</title></rect>"
            )
    return out


def _peak(p: Panel) -> str:
    at, nbytes = max(p.memory, key=lambda m: m[1])
    return f"{p.policy}: most at {duration(at)}, {sizes.text(nbytes)}"


def _short(text: str) -> str:
    """An axis label without needless zeros: "2.00 GiB" -> "2 GiB"."""
    number, _, unit = text.partition(" ")
    return f"{float(number):g} {unit}" if "." in number else text


def draw_roles(panels: Sequence[Panel], budget: int | None, top: float, wide: int = WIDTH) -> tuple[str, float]:
    """Stacked bars, one per policy, of the bytes on the device at its peak, by role; and the height in pixels.

    wide: pixels of the picture"""
    widest = max((sum(p.row["role_bytes"].values()) for p in panels), default=0) or 1
    widest = max(widest, min(budget or 0, 4 * widest)) * 1.02
    names = [p.policy if len(p.policy) <= 40 else "…" + p.policy[-39:] for p in panels]  # a file's path may be long
    left = max(150.0 if wide > NARROW else 0.0, 20 + 7.2 * max(map(len, names), default=0))
    plot = wide - left - 120
    row = 26
    height = len(panels) * row
    line = left + plot * budget / widest if budget is not None and budget <= widest else None
    out = [f'<g transform="translate(0 {top:g})">']
    base = next((p for p in panels if p.policy.startswith("baseline")), None)
    for i, (p, name) in enumerate(zip(panels, names, strict=True)):
        y, x = i * row, left
        out.append(f'<text x="{left - 10:.1f}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        for role, nbytes in p.row["role_bytes"].items():
            w = plot * nbytes / widest
            if w > 0.05:
                seen = max(w - 0.6, 0.3)
                out.append(
                    f'<rect class="{role}" x="{x:.1f}" y="{y + 3}" width="{seen:.1f}" height="{row - 8}" rx="1.5">'
                    f"<title>{ROLES.get(role, role)}: {sizes.text(nbytes)}</title></rect>"
                )
                x += w
        nbytes = sum(p.row["role_bytes"].values())
        total = sizes.text(nbytes)
        if base is not None and p is not base:
            total += f", {nbytes / sum(base.row['role_bytes'].values()):.2f}×"
        bad = "" if p.row.get("fits", True) else " bad"
        if line is not None and x <= line < x + 7 + 6.6 * len(total):
            x = line  # move the label right, because the budget's line would cross it
        out.append(f'<text class="soft{bad}" x="{x + 7:.1f}" y="{y + 16}">{total}</text>')
    if budget is not None and line is not None:
        out.append(f'<line class="budget" x1="{line:.1f}" x2="{line:.1f}" y1="-4" y2="{height}"/>')
        word = f"budget {sizes.text(budget)}"
        out.append(f'<text class="soft bad" x="{line:.1f}" y="-8" text-anchor="middle">{word}</text>')
    present = [role for role in ROLES if any(p.row["role_bytes"].get(role, 0) > widest / 2000 for p in panels)]
    key, extra = legend([(role, ROLES[role]) for role in present], left if wide > NARROW else 10, height + 10, wide)
    return "\n".join((*out, key, "</g>")), height + 10 + extra


def legend(entries: Sequence[tuple[str, str]], left: float, top: float, wide: int = WIDTH) -> tuple[str, float]:
    """A legend: coloured squares with words, in as many rows as it needs; and its height in pixels."""
    x, y = left, top
    out = []
    for kind, word in entries:
        width = 22 + 6.6 * len(word) + 12
        if x + width > wide - RIGHT and x > left:
            x, y = left, y + 20
        out.append(f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="11" height="11" rx="2"/>')
        out.append(f'<text class="soft" x="{x + 17:.0f}" y="{y + 10:.0f}">{escape(word)}</text>')
        x += width
    return "\n".join(out), y - top + 20


def kinds(panels: Sequence[Panel]) -> list[tuple[str, str]]:
    """(class, words) of each kind of bar that the panels have."""
    present = {b.kind for p in panels for b in p.bars}
    entries = [(kind, word) for kind, word in KINDS.items() if kind in present]
    if any(p.stalls for p in panels):
        entries.append(("stall", "compute stalled"))
    return entries


def picture(panels: Sequence[Panel], budget: int | None, heading: str, notes: str = "") -> str:
    """One SVG file: the heading, the notes, a legend and every policy's panel."""
    scale = Scale(panels, budget)
    base = next((p for p in panels if p.policy.startswith("baseline")), None)
    note, more = noted(notes, LEFT)
    key, extra = legend(kinds(panels), LEFT, 62 + more)
    top = 62 + more + extra + 8
    parts = [f'<text class="head" x="{LEFT}" y="30">{escape(heading)}</text>', note, key]
    for p in panels:
        parts.append(draw_panel(p, scale, budget, base, top))
        top += panel_height(p)
    height = top + 6
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mini" viewBox="0 0 {WIDTH} {height:g}" '
        f'width="{WIDTH}" height="{height:g}" role="img">\n<style>{STYLE}</style>\n'
        f'<rect class="paper" width="{WIDTH}" height="{height:g}" rx="8"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
