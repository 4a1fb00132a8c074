"""The papers' figures compared with ours: one file per system, each with its PARTS (part.py).

This package lies above minidnn and uses any part of it. Of minidnn only cli/reproduce.py names it, to load the verb
(verb.py). A system's file asks for networks by name, plans them with the memory facts of its paper, and yields a Row
for each number in the paper. Decisions about memory are the policies', never made here.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import get_args

from minidnn_papers.part import Part, is_wanted
from minidnn_papers.records import ReproducedRow, Verdict, Verdicts
from minidnn_papers.row import Row, Tell

# {the name of a file here: the system and its paper}
SYSTEMS = {
    "vdnn": "vDNN (MICRO 2016)",
    "vdnnpp": "vDNN++ (IPDPS 2019)",
    "superneurons": "SuperNeurons (PPoPP 2018)",
    "layrub": "Layrub (TACO 2018)",
    "accudnn": "AccUDNN (ICCD 2019), AccUDNN-style",
}


def verdicts(found: Sequence[ReproducedRow]) -> list[Verdicts]:
    """How many rows of each system have each verdict: the systems as they come, a verdict without rows with 0."""
    counted = Counter((r.system, r.verdict) for r in found)
    return [
        Verdicts(system=system, verdict=verdict, figures=counted[system, verdict])
        for system in dict.fromkeys(r.system for r in found)
        for verdict in get_args(Verdict)
    ]


def parts(system: str) -> Sequence[Part]:
    """What computes the rows of a system. Raises KeyError for a name that is not in SYSTEMS."""
    if system not in SYSTEMS:
        raise KeyError(f"there is no system {system!r} (there are {', '.join(SYSTEMS)})")
    result: Sequence[Part] = importlib.import_module(f"minidnn_papers.{system}").PARTS
    return result


def figures(system: str) -> list[str]:
    """The figures of a system's paper that have rows. Raises KeyError as `parts`."""
    return list(dict.fromkeys(figure for part in parts(system) for figure in part.figures))


def rows(system: str, tell: Tell = lambda what: None, wanted: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of one system, each as soon as it is computed. Raises KeyError as `parts`.

    wanted: the words of figures or quantities (`part.is_wanted`); parts of others are not computed. None: all"""
    for part in parts(system):
        if part.concerns(wanted):
            yield from (row for row in part.rows(tell) if is_wanted(row, wanted))
