"""The page of an answer that has none of its own: its picture, if there is one, its sentences, and its table."""

from __future__ import annotations

from collections.abc import Sequence

from minidnn.report.markup import escape
from minidnn.report.page import page as framed
from minidnn.report.table import WORDY


def page(
    title: str,
    notes: str,
    picture: str,
    headings: Sequence[str],
    lines: Sequence[Sequence[str]],
    sentences: Sequence[str],
    version: str,
) -> str:
    """An HTML page. picture: SVG without a heading of its own; "": there is none"""
    left = [i == 0 or heading in WORDY for i, heading in enumerate(headings)]
    head = "".join(f"<th{_side(at)}>{escape(h)}</th>" for h, at in zip(headings, left, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{_side(at)}>{escape(cell)}</td>" for cell, at in zip(line, left, strict=True)) + "</tr>"
        for line in lines
    )
    text = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return framed(
        title,
        f"""{f'<p class="dim">{escape(notes)}</p>' if notes else ""}
{f'<section><div class="scroll">{picture}</div></section>' if picture else ""}
{f"<section>{text}</section>" if text else ""}
<section><div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>""",
        f"Made by minidnn {escape(version)}. Sizes are binary: 1 GiB is 1024 MiB.",
    )


def _side(left: bool) -> str:
    return ' class="l"' if left else ""
