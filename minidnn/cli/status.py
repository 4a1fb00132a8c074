"""One line on a terminal that names the work in progress."""

from __future__ import annotations

import sys

from minidnn.visible import visible


def status(text: str = "") -> None:
    """Replace the line on standard error by `text`; without text clear it. Does nothing if that is not a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{visible(text)}")
        sys.stderr.flush()
