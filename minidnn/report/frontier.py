"""The frontier as a table, and as a picture: seconds of a step against bytes, the bound below."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from minidnn import sizes
from minidnn.memory.policies import BUDGETED
from minidnn.report.draw import STYLE, WIDTH, byte_axis, ticks
from minidnn.report.markup import escape
from minidnn.report.table import duration, plain, size
from minidnn.visible import say

COLOURS = ("out", "update", "in", "weights", "feature_maps", "again", "workspace", "extra")
LEFT, RIGHT, TOP, HEIGHT, BELOW = 90, 40, 104, 330, 52
HIGHEST = 1.7  # of the least bound: slower plans lie above the picture
OTHER = ["quickest other", "its time", "its over bound"]
SPARED = ("ops again", "copied out", "peak")
Row = Mapping[str, Any]  # of study/frontier.py


def show(rows: Sequence[Row], title: str, least: int, reached: int | None) -> None:
    """Print a line for each budget: the bound, `best`, what the next budget saves, and the quickest of the others.

    least, reached: bytes: the bound's least budget, and the least that `best` keeps (None: not known)
    """
    lines = []
    budgets = sorted({r["budget_bytes"] for r in rows})
    bests = {r["budget_bytes"]: r for r in rows if r["policy"] == BUDGETED}
    for budget, more in zip(budgets, [*budgets[1:], None], strict=True):
        at = [r for r in rows if r["budget_bytes"] == budget]
        best = bests.get(budget)
        others = sorted((r for r in at if r["policy"] != BUDGETED), key=lambda r: r["seconds"])
        line = [size(budget), duration(at[0]["bound_seconds"])]
        if best is None:
            line += ["–"] * 7
        else:
            line += [duration(best["seconds"]), _percent(best), size(best["peak_bytes"])]
            line += [size(best["offload_bytes"]), str(best["recomputed_ops"])]
            if more in bests and best["price"] is not None:
                saved = best["seconds"] - bests[more]["seconds"]
                line += [duration(saved), duration(best["price"] * (more - budget))]
            else:
                line += ["–"] * 2
        quickest = others[0] if others else None
        line += ["–"] * 3 if quickest is None else [
            quickest["policy"], duration(quickest["seconds"]), _percent(quickest),
        ]  # fmt: skip
        lines.append(line)
    headings = ["budget", "bound", BUDGETED, "over bound", "peak", "copied out", "ops again", "next saves", "by price"]
    if len(bests) < len(rows):
        headings += OTHER
    plain(headings, [line[: len(headings)] for line in lines], title, spare=SPARED)
    kept = "" if reached is None else f"; {BUDGETED} keeps {size(reached)}"
    say(f"The least budget that the bound allows is {size(least)}{kept}.")
    say(f"Next saves: what {BUDGETED} gains with the next budget. By price: the bytes between, at the bound's price.")


def _percent(r: Row) -> str:
    return "–" if r["gap"] is None else f"{r['gap']:.1%}"


def picture(rows: Sequence[Row], bounds: Sequence[tuple[int, float]], title: str, note: str) -> str:
    """An SVG file. A line stays at a plan's seconds up to the bytes of the next quicker plan.

    bounds: (bytes, the least seconds within them)
    """
    least = min((s for _, s in bounds), default=0.0)
    top = min(HIGHEST * least, 1.05 * max(r["seconds"] for r in rows))
    bottom_seconds = least - 0.08 * (top - least)
    beyond = (bounds[-1][0] - bounds[0][0]) * 0.04
    first, last = bounds[0][0] - beyond, bounds[-1][0] + beyond
    bottom = TOP + HEIGHT

    def x(nbytes: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (nbytes - first) / (last - first)

    def y(seconds: float) -> float:
        return TOP + HEIGHT * (1 - (min(seconds, top) - bottom_seconds) / (top - bottom_seconds))

    out = [
        f'<text class="head" x="{LEFT}" y="30">{escape(title)}</text>',
        f'<text class="soft" x="{LEFT}" y="49">{escape(note)}</text>',
    ]
    step = ticks(top - bottom_seconds, 6)[1]
    for value in (k * step for k in range(math.ceil(bottom_seconds / step), math.floor(top / step) + 1)):
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        label = duration(value)
        out.append(f'<text class="soft" x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{label}</text>')
    out += byte_axis(first, last, x, bottom)
    out.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    out.append(f'<text class="soft" x="{WIDTH - RIGHT}" y="{bottom + 36}" text-anchor="end">bytes of the arena</text>')
    edge = "".join(f"L{x(b):.1f} {y(s):.1f}" for b, s in bounds)
    floor = f"M{x(bounds[0][0]):.1f} {bottom}{edge}V{bottom}Z"
    out.append(f'<path d="{floor}" fill="var(--soft)" fill-opacity="0.18"><title>no plan lies here</title></path>')
    out.append(f'<path d="M{edge[1:]}" fill="none" stroke="var(--soft)" stroke-width="1.4" stroke-dasharray="5 3"/>')
    out += _legend(0, "soft", "bound: no plan below")
    at = 190
    names = list(dict.fromkeys(r["policy"] for r in rows))
    for colour, policy in zip(COLOURS, names, strict=False):
        of = _falling([r for r in rows if r["policy"] == policy])
        shown = [r for r in of if r["seconds"] <= top]
        name = policy if shown else f"{policy} (above)"
        out += _legend(at, colour, name)
        at += 40 + round(6.6 * len(name))
        if shown:
            out += _line(shown, x, y, colour, 2.6 if policy == BUDGETED else 1.5)
    height = bottom + BELOW
    frame = f'xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = f'<style>{STYLE}</style><rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>'
    body = "\n".join(out)
    return f'<svg class="mini" {frame} role="img">{head}\n{body}\n</svg>\n'


def _falling(rows: Sequence[Row]) -> list[Row]:
    """The rows by bytes of their arenas, without those that a smaller one is as quick as."""
    found: list[Row] = []
    for r in sorted(rows, key=lambda r: (r["peak_bytes"], r["seconds"])):
        if not found or r["seconds"] < found[-1]["seconds"]:
            found.append(r)
    return found


def _line(
    of: Sequence[Row], x: Callable[[float], float], y: Callable[[float], float], colour: str, width: float
) -> list[str]:
    path = f"M{x(of[0]['peak_bytes']):.1f} {y(of[0]['seconds']):.1f}"
    for before, r in pairwise(of):
        path += f"L{x(r['peak_bytes']):.1f} {y(before['seconds']):.1f}V{y(r['seconds']):.1f}"
    path += f"H{WIDTH - RIGHT}"
    found = [f'<path d="{path}" fill="none" stroke="var(--{colour})" stroke-width="{width}"/>']
    for r in of:
        over = "" if r["gap"] is None else f", {_percent(r)} over the bound"
        said = f"{r['policy']} in {sizes.text(r['peak_bytes'])}: {duration(r['seconds'])}{over}"
        found.append(
            f'<circle cx="{x(r["peak_bytes"]):.1f}" cy="{y(r["seconds"]):.1f}" r="3.5" fill="var(--{colour})">'
            f"<title>{escape(said)}</title></circle>"
        )
    return found


def _legend(at: int, colour: str, name: str) -> list[str]:
    return [
        f'<rect x="{LEFT + at}" y="64" width="11" height="11" rx="2" fill="var(--{colour})"/>',
        f'<text class="soft" x="{LEFT + at + 17}" y="74">{escape(name)}</text>',
    ]
