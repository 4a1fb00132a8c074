"""The picture of benchmarks/budgets.py: seconds of an iteration against bytes of the arena, in one SVG file."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import Any

from minidnn import sizes
from minidnn.report import table
from minidnn.report.draw import STYLE, WIDTH, byte_axis, ticks

COLOURS = ("out", "update", "in", "weights", "feature_maps", "again", "workspace", "extra")
LEFT, RIGHT, TOP, HEIGHT, BELOW = 90, 40, 104, 330, 52


def picture(document: dict[str, Any]) -> str:
    """An SVG file: measured seconds are filled points, predicted ones hollow.

    A policy's line stays at a plan's seconds up to the bytes of its next larger plan."""
    rows = document["rows"]
    peaks = [r["peak_bytes"] for r in rows]
    beyond = (max(peaks) - min(peaks)) * 0.06 or 0.1 * max(peaks)
    first, last = min(peaks) - beyond, max(peaks) + beyond
    highest = max(max(r["seconds"], r["predicted_seconds"]) for r in rows) * 1.08

    def x(nbytes: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (nbytes - first) / (last - first)

    def y(seconds: float) -> float:
        return TOP + HEIGHT * (1 - seconds / highest)

    bottom = TOP + HEIGHT
    title = f"{document['network']}, batch {document['batch']}: seconds of an iteration against the budget"
    m = document["machine"]
    note = f"{m['cpu']}, {document['threads']} threads; filled: measured, hollow: foreseen"
    out = [
        f'<text class="head" x="{LEFT}" y="30">{escape(title)}</text>',
        f'<text class="soft" x="{LEFT}" y="49">{escape(note)}</text>',
    ]
    for value in ticks(highest, 6):
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        out.append(f'<text class="soft" x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g} s</text>')
    out += byte_axis(first, last, x, bottom)
    out.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    out.append(f'<text class="soft" x="{WIDTH - RIGHT}" y="{bottom + 36}" text-anchor="end">bytes of the arena</text>')
    at = LEFT
    for colour, policy in zip(COLOURS, dict.fromkeys(r["policy"] for r in rows), strict=False):
        of = sorted((r for r in rows if r["policy"] == policy), key=lambda r: r["peak_bytes"])
        path = f"M{x(of[0]['peak_bytes']):.1f} {y(of[0]['seconds']):.1f}"
        for before, r in pairwise(of):
            path += f"L{x(r['peak_bytes']):.1f} {y(before['seconds']):.1f}V{y(r['seconds']):.1f}"
        path += f"H{WIDTH - RIGHT}"
        out.append(f'<path d="{path}" fill="none" stroke="var(--{colour})" stroke-width="1.6"/>')
        for r in of:
            said = (
                f"{policy} in {sizes.text(r['peak_bytes'])}: {table.duration(r['seconds'])}, foreseen "
                f"{table.duration(r['predicted_seconds'])}, {sizes.text(r['offload_bytes'])} moved out"
            )
            place = f'cx="{x(r["peak_bytes"]):.1f}"'
            hollow = f'fill="var(--paper)" stroke="var(--{colour})" stroke-width="1.4"'
            out.append(f'<circle {place} cy="{y(r["predicted_seconds"]):.1f}" r="4.5" {hollow}/>')
            out.append(
                f'<circle {place} cy="{y(r["seconds"]):.1f}" r="4" fill="var(--{colour})">'
                f"<title>{escape(said)}</title></circle>"
            )
        out.append(f'<rect x="{at}" y="64" width="11" height="11" rx="2" fill="var(--{colour})"/>')
        out.append(f'<text class="soft" x="{at + 17}" y="74">{escape(policy)}</text>')
        at += 40 + round(6.6 * len(policy))
    height = bottom + BELOW
    size = f'xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = f'<style>{STYLE}</style><rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>'
    body = "\n".join(out)
    return f'<svg class="mini" {size} role="img">{head}\n{body}\n</svg>\n'
