"""A table for a notebook: plain HTML, in the notebook's colours and fonts. Cells have room, and numbers are on the
right, also where a notebook has no style for tables."""

from __future__ import annotations

from collections.abc import Sequence

from minidnn.report.markup import escape
from minidnn.report.table import WORDY

LEFT = (*WORDY, "of", "fits", "algorithms")  # headings of columns of words


def tabled(title: str, headings: Sequence[str], lines: Sequence[Sequence[str]], sentences: Sequence[str] = ()) -> str:
    """A table below its title, and sentences below it."""
    sides = ["left" if i == 0 or heading in LEFT else "right" for i, heading in enumerate(headings)]
    looks = [f'style="text-align:{side};padding:3px 9px"' for side in sides]
    head = "".join(f"<th {look}>{escape(heading)}</th>" for heading, look in zip(headings, looks, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td {look}>{escape(cell)}</td>" for cell, look in zip(line, looks, strict=True)) + "</tr>"
        for line in lines
    )
    text = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow-x:auto"><p><b>{escape(title)}</b></p>{table}{text}</div>'
