"""Faults that are known and not mended yet: `make fuzz` counts them apart, and the tests leave them out.

Each is a pattern of the kind's name and of "Type: message" of the error, with the reason. The list should be empty.
"""

from __future__ import annotations

import re

KNOWN: tuple[tuple[str, str, str], ...] = ()


def known(kind: str, error: BaseException) -> str | None:
    """The reason why this fault is known; None if it is new."""
    text = f"{type(error).__name__}: {error}"
    return next((why for which, what, why in KNOWN if re.fullmatch(which, kind) and re.search(what, text)), None)
