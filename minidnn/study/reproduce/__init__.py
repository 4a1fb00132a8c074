"""The papers' figures compared with ours: one file per system, each with a function `rows(tell)`.

A file asks for networks by name, plans them with the memory facts of its paper, and yields a Row for each number in the
paper. Decisions about memory are the policies', never made here.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import get_args

from minidnn.results.others import ReproducedRow, Verdict, Verdicts
from minidnn.study.reproduce.row import Row, Tell

SYSTEMS = ("vdnn", "vdnnpp", "superneurons", "layrub", "accudnn")


def verdicts(found: Sequence[ReproducedRow]) -> list[Verdicts]:
    """How many rows of each system have each verdict: the systems as they come, a verdict without rows with 0."""
    counted = Counter((r.system, r.verdict) for r in found)
    return [
        Verdicts(system=system, verdict=verdict, figures=counted[system, verdict])
        for system in dict.fromkeys(r.system for r in found)
        for verdict in get_args(Verdict)
    ]


def rows(system: str, tell: Tell = lambda what: None) -> Iterator[Row]:
    """The rows of one system, each as soon as it is computed. Raises KeyError for a name that is not in SYSTEMS."""
    if system not in SYSTEMS:
        raise KeyError(f"there is no system {system!r} (there are {', '.join(SYSTEMS)})")
    found: Iterator[Row] = importlib.import_module(f"minidnn.study.reproduce.{system}").rows(tell)
    return found
