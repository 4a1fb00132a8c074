"""Text in HTML and SVG."""

from __future__ import annotations

import html
import re
from textwrap import wrap

from minidnn.visible import visible

LETTERS, LINE = 160, 16  # of a line of a note below a heading, and its pixels


def escape(text: str) -> str:
    """The text as HTML and XML, made `visible`: most control characters may not stand in XML, not even escaped."""
    return html.escape(visible(text))


def noted(note: str, x: float, y: float = 49, letters: int = LETTERS) -> tuple[str, int]:
    """A note below a heading, as SVG, on as many lines as it takes; and the pixels that those after the first take.

    letters: of a line"""
    lines = wrap(note, letters)
    shown = [f'<text class="soft" x="{x}" y="{y + LINE * i}">{escape(line)}</text>' for i, line in enumerate(lines)]
    return "\n".join(shown), LINE * max(0, len(lines) - 1)


ABSOLUTE = re.compile(r"(?<![\w./])/(?:[^\s/]+/)+(?=[^\s/])")


def placeless(text: str) -> str:
    """The text with the names of files in place of their absolute paths: a page is shown on other machines, too."""
    return ABSOLUTE.sub("", text)
