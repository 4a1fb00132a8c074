"""Throughput against minibatch as a picture, and as a page with its table. Nothing is loaded, and no script runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from minidnn import sizes
from minidnn.report.draw import STYLE, WIDTH, ticks
from minidnn.report.table import duration, rate

PAGE_STYLE = Path(__file__).with_name("page.css").read_text()
LEFT, RIGHT, TOP, HEIGHT, BELOW = 90, 60, 40, 300, 44
Row = Mapping[str, Any]  # "batch", "fits", "samples_per_second", "moved_bytes", ...


def picture(rows: Sequence[Row], best: int | None, unmoved: int | None, heading: str | None = None) -> str:
    """Samples per second (up) of each batch that fits (to the right); hollow where nothing moves, filled where tensors
    are swapped. Two dashed lines: the largest batch at which nothing moves, and the one of the highest throughput.

    heading: of a picture that stands alone; None where it is part of a page."""
    kept = [r for r in rows if r["fits"]]
    widest = max((r["batch"] for r in rows), default=1)
    highest = max((r["samples_per_second"] for r in kept), default=0.0) * 1.08 or 1.0

    def x(batch: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * batch / widest

    def y(rate: float) -> float:
        return TOP + HEIGHT * (1 - rate / highest)

    out = []
    for value in ticks(highest, 5):
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        out.append(f'<text class="soft" x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    out.append(f'<text class="soft" x="{LEFT - 8}" y="{TOP - 16}" text-anchor="end">samples/s</text>')
    bottom = TOP + HEIGHT
    for value in ticks(widest, 8):
        label = f'<text class="soft" x="{x(value):.1f}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>'
        out += [f'<line class="axis" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{bottom}" y2="{bottom + 4}"/>', label]
    out.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    out.append(f'<text class="soft" x="{WIDTH - RIGHT}" y="{bottom + 34}" text-anchor="end">minibatch</text>')
    for row, (at, words) in enumerate(((unmoved, "largest without swapping"), (best, "efficiency-optimal"))):
        if at is not None:
            end = at > widest * 0.7
            out.append(f'<line class="turn" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{TOP - 8}" y2="{bottom}"/>')
            anchor, dx = ("end", -6) if end else ("start", 6)
            place = f'x="{x(at) + dx:.1f}" y="{bottom - 12 - 18 * row}" text-anchor="{anchor}"'
            out.append(f'<text class="soft over" {place}>{words}: {at}</text>')
    if kept:
        path = "L".join(f"{x(r['batch']):.1f} {y(r['samples_per_second']):.1f}" for r in kept)
        out.append(f'<path class="curve" d="M{path}"/>')
    for r in kept:
        fill = "var(--area)" if r["moved_bytes"] else "var(--paper)"
        moved = f"{sizes.text(r['moved_bytes'])} moved" if r["moved_bytes"] else "nothing moves"
        speed = rate(r["samples_per_second"])
        title = f"{r['batch']}: {speed} samples/s, {duration(r['seconds'])} an iteration, {moved}"
        out.append(
            f'<circle cx="{x(r["batch"]):.1f}" cy="{y(r["samples_per_second"]):.1f}" r="4" fill="{fill}" '
            f'stroke="var(--area)" stroke-width="1.6"><title>{escape(title)}</title></circle>'
        )
    for r in rows:
        if not r["fits"]:
            place = f'x="{x(r["batch"]):.1f}" y="{bottom - 6}" text-anchor="middle"'
            out.append(f'<text class="bad" {place}>×<title>{r["batch"]}: {escape(r["why"])}</title></text>')
    height = bottom + BELOW
    size = style = ""
    if heading is not None:
        size = f'xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        style = f'<style>{STYLE}</style><rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>'
        style += f'<text x="{LEFT + 12}" y="{TOP - 16}" font-weight="600">{escape(heading)}</text>'
    body = "\n".join(out)
    return f'<svg class="mini" {size} viewBox="0 0 {WIDTH} {height}" role="img">{style}\n{body}\n</svg>\n'


def page(
    rows: Sequence[Row],
    best: int | None,
    unmoved: int | None,
    heading: str,
    says: Sequence[str],
    table: tuple[Sequence[str], Sequence[Sequence[str]]],
    version: str,
) -> str:
    """The picture above its table. `says`: what it comes to, a sentence each, the source of seconds last."""
    headings, lines = table
    head = "".join(f"<th>{escape(h)}</th>" for h in headings)
    body = "".join(
        f'<tr class="{"" if r["fits"] else "refused"}">' + "".join(f"<td>{escape(c)}</td>" for c in line) + "</tr>"
        for r, line in zip(rows, lines, strict=True)
    )
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in says)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(heading)}</title><style>{PAGE_STYLE}{STYLE}</style></head>
<body><main>
<h1>{escape(heading)}</h1>
<section><h2>Throughput against minibatch</h2>
<p class="dim">Filled where tensors are swapped. Point at anything for its numbers.</p>
<div class="scroll">{picture(rows, best, unmoved)}</div></section>
<section><h2>What it comes to</h2>{said}</section>
<section><h2>What was tried</h2><div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
</div></section>
<footer>Made by minidnn {escape(version)}. Sizes are binary: 1 GiB is 1024 MiB.</footer>
</main></body></html>
"""
