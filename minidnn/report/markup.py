"""Text in HTML and SVG."""

from __future__ import annotations

import html

from minidnn.visible import visible


def escape(text: str) -> str:
    """The text as HTML and XML, made `visible`: most control characters may not stand in XML, not even escaped."""
    return html.escape(visible(text))
