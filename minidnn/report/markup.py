"""Text in HTML and SVG."""

from __future__ import annotations

import html
import re

from minidnn.visible import visible


def escape(text: str) -> str:
    """The text as HTML and XML, made `visible`: most control characters may not stand in XML, not even escaped."""
    return html.escape(visible(text))


ABSOLUTE = re.compile(r"(?<![\w./])/(?:[^\s/]+/)+(?=[^\s/])")


def placeless(text: str) -> str:
    """The text with the names of files in place of their absolute paths: a page is shown on other machines, too."""
    return ABSOLUTE.sub("", text)
