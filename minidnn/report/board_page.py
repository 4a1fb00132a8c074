"""The board as an HTML page: how each policy did in all, a picture for each net on a GPU, and the papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minidnn.report import board
from minidnn.report.board_charts import HEIGHT, WIDTH, chart, key, looks
from minidnn.report.bound import UNBOUND
from minidnn.report.markup import escape
from minidnn.report.page import key as legend
from minidnn.report.page import page as framed
from minidnn.report.table import duration, long, size

Row = Mapping[str, Any]
BAR = 180  # pixels of a policy's bar
# what a policy's cells came to: a colour, and words
PARTS = (
    ("in", "the fastest"),
    ("convolution", "within 5 % of it"),
    ("labels", "slower"),
    ("bad", "refused"),
    ("stall", "failed"),
)
HINT = (
    "Pick a policy to highlight it in all pictures. Point at a dot for its numbers. In red: how many policies are "
    "refused at that budget."
)


def page(document: Mapping[str, Any], title: str, note: str, version: str) -> str:
    """The page."""
    look = looks([s["policy"] for s in document["standings"]])
    here = Path(__file__)
    charts = "".join(_figure(document, contest, look) for contest in document["contests"])
    body = f"""<p class="says">{escape(" ".join(board.sentences(document)[:2]))}</p>
<p class="dim">{escape(note)} No plan within the budget is faster than the bound, {UNBOUND}.
A budget in percent is relative to the bytes that liveness:p takes.</p>
<section><h2>Overall</h2>{legend(PARTS)}
<div class="scroll">{_standings(document)}</div></section>
<section><h2>Time over the bound against the budget</h2>
<p class="dim"><output data-told="{escape(HINT)}" aria-live="polite">{escape(HINT)}</output></p>
{_picks(document, look)}<div class="charts">{charts}</div></section>
{_failures(document)}
<section><h2>Who proposed which policy, and what our reading assumes</h2>
<div class="scroll">{_papers(document)}</div></section>
<script>{here.with_name("board.js").read_text(encoding="utf-8")}</script>"""
    made = f"Made by minidnn {escape(version)} (<code>minidnn board</code>). Sizes are binary: 1 GiB is 1024 MiB."
    return framed(title, body, made, here.with_name("board.css").read_text(encoding="utf-8"))


def _standings(document: Mapping[str, Any]) -> str:
    headings = ("policy", "cells", "quickest", "within 5 %", "kept", "refused", "median over bound", "planning", "of")
    lines = []
    most = max((s["quickest"] for s in document["standings"]), default=0)
    for s in document["standings"]:
        gap = "–" if s["median_gap"] is None else board.over(s["median_gap"])
        best = ' class="best"' if s["quickest"] == most > 0 else ""
        lines.append(
            f'<tr data-policy="{escape(s["policy"])}"><td class="l">{escape(s["policy"])}</td>'
            f'<td class="bar">{_bar(s)}</td><td{best}>{s["quickest"]}</td><td>{s["near"]}</td><td>{s["kept"]}</td>'
            f"<td>{s['refused_cells']}</td><td>{gap}</td><td>{escape(long(s['plan_seconds']))}</td>"
            f'<td class="l">{escape(board.short(s["policy"]))}</td></tr>'
        )
    head = "".join(f"<th{' class=l' if h in ('policy', 'cells', 'of') else ''}>{h}</th>" for h in headings)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _bar(s: Row) -> str:
    """A policy's cells by what came of them."""
    parts = (
        s["quickest"], s["near"] - s["quickest"], s["kept"] - s["near"], s["refused_cells"], s["failed_cells"],
    )  # fmt: skip
    at, out = 0.0, []
    for (kind, words), count in zip(PARTS, parts, strict=True):
        width = BAR * count / max(s["cells"], 1)
        if count:
            title = f"<title>{count} {words}</title>"
            out.append(f'<rect class="{kind}" x="{at:.1f}" y="0" width="{width:.1f}" height="14">{title}</rect>')
        at += width
    label = ", ".join(f"{count} {words}" for (_, words), count in zip(PARTS, parts, strict=True))
    frame = f'class="mini" viewBox="0 0 {BAR} 14" preserveAspectRatio="none" role="img" aria-label="{escape(label)}"'
    return f"<svg {frame}>{''.join(out)}</svg>"


def _picks(document: Mapping[str, Any], look: Mapping[str, tuple[str, str]]) -> str:
    """The legend: a button for each policy."""
    buttons = []
    for s in document["standings"]:
        gap = "" if s["median_gap"] is None else f", by the median {board.over(s['median_gap'])} over the bound"
        text = (
            f"{s['policy']} ({board.short(s['policy'])}): the fastest in {s['quickest']} of {s['cells']} cells, "
            f"within 5 % in {s['near']}, refused in {s['refused_cells']}{gap}."
        )
        line = f'<svg class="mini" viewBox="0 -5 20 10" aria-hidden="true">{key(*look[s["policy"]])}</svg>'
        data = f'data-policy="{escape(s["policy"])}" data-told="{escape(text)}"'
        buttons.append(f'<button type="button" aria-pressed="false" {data}>{line}{escape(s["policy"])}</button>')
    return f'<div class="picks" role="group" aria-label="policies">{"".join(buttons)}</div>'


def _figure(document: Mapping[str, Any], contest: Row, look: Mapping[str, tuple[str, str]]) -> str:
    rows = board.of(document, contest)
    label = f"{board.named(contest)}: time over the bound by policy and budget; the numbers are below"
    drawn = chart(contest, rows, look)
    svg = f'<svg class="mini" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{drawn}</svg>'
    head = "".join(f'<p class="dim note">{escape(sentence)}</p>' for sentence in board.heads(contest))
    return f"<figure>{svg}<details><summary>The numbers</summary>{head}{_matrix(rows)}</details></figure>"


def _matrix(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    columns = board.budgets(rows)
    quickest = {
        b: min(
            (r["step_seconds"] for r in rows if r["fits"] and (r["budget_bytes"], r["budget_part"]) == b), default=0.0
        )
        for b in columns
    }
    head = "".join(f"<th>{board.budget(b)}<br>{size(b[0])}</th>" for b in columns)
    result = {(r["policy"], (r["budget_bytes"], r["budget_part"])): r for r in rows}
    lines = []
    for policy in dict.fromkeys(r["policy"] for r in rows):
        line = []
        for b in columns:
            r = result.get((policy, b))
            fits = r is not None and r["fits"]
            kind = "out" if not fits else "best" if r and r["step_seconds"] <= quickest[b] * 1.001 else ""
            time = f"<br>{duration(r['step_seconds'])}" if r is not None and fits else ""
            line.append(f'<td class="{kind}">{escape(board.cell(r))}{time}</td>')
        lines.append(f'<tr data-policy="{escape(policy)}"><td class="l">{escape(policy)}</td>{"".join(line)}</tr>')
    body = f'<table><thead><tr><th class="l">policy</th>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
    return f'<div class="scroll" tabindex="0">{body}</div>'


def _failures(document: Mapping[str, Any]) -> str:
    result = board.failures(document)
    if not result:
        return ""
    items = "".join(f"<p><b>{escape(names)}</b>: {escape(why)}</p>" for why, names in result.items())
    return f"<section><h2>Planning failed</h2>{items}</section>"


def _papers(document: Mapping[str, Any]) -> str:
    lines = []
    for p in document["papers"]:
        called = f"{p['called']}: " if p["called"] else ""
        where = f"{p['venue']} {p['year']}, {p['section']}" if p["authors"] else "minidnn's own"
        title = p["paper_title"] if p["authors"] else p["paper_title"].partition(": ")[2]
        silent = "".join(f"<li>{escape(sentence)}</li>" for sentence in p["silent"])
        lines.append(
            f'<tr data-policy="{escape(p["policy"])}"><td class="l">{escape(p["policy"])}</td>'
            f'<td class="wide">{escape(title)}<br><span class="dim">{escape(p["authors"])}</span></td>'
            f'<td class="wide">{escape(called)}{escape(where)}.{f"<ul>{silent}</ul>" if silent else ""}</td></tr>'
        )
    head = '<th class="l">policy</th><th class="l">paper</th><th class="l">source, and what our reading assumes</th>'
    return f"<table class=papers><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
