"""A table for a notebook: plain HTML, without a style of its own, so that it suits the notebook's."""

from __future__ import annotations

from collections.abc import Sequence

from minidnn.report.markup import escape


def tabled(title: str, headings: Sequence[str], lines: Sequence[Sequence[str]], sentences: Sequence[str] = ()) -> str:
    """A table below its title, and sentences below it."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    text = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow-x:auto"><p><b>{escape(title)}</b></p>{table}{text}</div>'
