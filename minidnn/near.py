"""Names that are nearly right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'conv1'?` where something known is close to `name`; else nothing."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f", did you mean {close[0]!r}?" if close else ""
