"""The papers' figures, theirs beside ours: one system, one file, each with `rows(tell)`.

A file asks for networks by name, plans them with the paper's memory facts where it declares some, and yields a Row for
each number that the paper gives. Nothing here decides anything about memory: that is the policies' business.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from minidnn.study.reproduce.row import Row, Tell

SYSTEMS = ("vdnn", "vdnnpp", "superneurons", "layrub", "accudnn")


def rows(system: str, tell: Tell = lambda what: None) -> Iterator[Row]:
    """The rows of one system, as they are found. Raises KeyError for a name that is not in SYSTEMS."""
    if system not in SYSTEMS:
        raise KeyError(f"there is no system {system!r} (there are {', '.join(SYSTEMS)})")
    found: Iterator[Row] = importlib.import_module(f"minidnn.study.reproduce.{system}").rows(tell)
    return found
