"""The papers' figures compared with ours: one file per system, each with a function `rows(tell)`.

A file asks for networks by name, plans them with the memory facts of its paper, and yields a Row for each number in the
paper. Decisions about memory are the policies', never made here.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from minidnn.study.reproduce.row import Row, Tell

SYSTEMS = ("vdnn", "vdnnpp", "superneurons", "layrub", "accudnn")


def rows(system: str, tell: Tell = lambda what: None) -> Iterator[Row]:
    """The rows of one system, each as soon as it is computed. Raises KeyError for a name that is not in SYSTEMS."""
    if system not in SYSTEMS:
        raise KeyError(f"there is no system {system!r} (there are {', '.join(SYSTEMS)})")
    found: Iterator[Row] = importlib.import_module(f"minidnn.study.reproduce.{system}").rows(tell)
    return found
