"""The frame of every page: one HTML document that loads nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from minidnn.report.draw import STYLE
from minidnn.report.markup import escape
from minidnn.report.palette import of_pages

PAGE_STYLE = of_pages() + Path(__file__).with_name("page.css").read_text(encoding="utf-8")


SQUARE = '<svg class="mini" viewBox="0 0 11 11"><rect class="{}" width="11" height="11" rx="2"/></svg>'


def key(entries: Sequence[tuple[str, str]]) -> str:
    """A legend that wraps as text does. entries: (class, words)"""
    spans = "".join(f"<span>{SQUARE.format(kind)}{escape(words)}</span>" for kind, words in entries)
    return f'<p class="key">{spans}</p>'


def page(title: str, body: str, footer: str, style: str = "") -> str:
    """An HTML document with this title.

    body: HTML below the heading. footer: HTML at the end of the page. style: CSS besides that of every page."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{PAGE_STYLE}{STYLE}{style}</style></head>
<body><main>
<h1>{escape(title)}</h1>
{body}
<footer>{footer}</footer>
</main></body></html>
"""
