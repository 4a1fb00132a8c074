"""One line on a terminal that names the work in progress."""

from __future__ import annotations

import sys


def status(text: str = "") -> None:
    """Replace the line on standard error by `text`; without text clear it. Does nothing if that is not a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
