"""One line of a terminal that says what is being worked on."""

from __future__ import annotations

import sys


def status(text: str = "") -> None:
    """Overwrite the line; nothing clears it. What is no terminal gets nothing."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
