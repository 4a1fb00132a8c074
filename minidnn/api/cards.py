"""Which of the known GPUs is enough for a net, and at what loss of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minidnn import sizes
from minidnn.api import header
from minidnn.api.answer import Answer, Tell, silent
from minidnn.api.plan import listed
from minidnn.jobs.gpus import HOST
from minidnn.jobs.job import Job, Source, read
from minidnn.report import cards as report
from minidnn.results.budgets import CardRow
from minidnn.results.budgets import Cards as Document
from minidnn.study import cards as study

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.jobs.setting import Given

ANY = "a100"  # a GPU whose ops are fused as those of any other


class Cards(Answer[Document, CardRow]):
    """The result of `minidnn.cards`: a row for each GPU with a profile, the least memory first."""

    def cells(self) -> tuple[list[str], list[list[str]]]:
        return report.cells(self.rows)

    def says(self) -> list[str]:
        return report.says(self.rows)


def cards(
    net: Source,
    gpus: Sequence[str] | str | None = None,
    *,
    batch: int | None = None,
    ignore_unknown: bool = False,
    **given: Unpack[Given],
) -> Cards:
    """Plan a net within the memory of each GPU that has a profile, and simulate a step there.

    net:      a Net, a solver's parameters, a file, or the name of a model
    gpus:     any names of GPUs, or files; None: all that have a profile
    keywords: as of `minidnn.plan`

    Raises NoSuchModel, ProfileError, InvalidFile and InvalidInput.
    """
    return of(read(net, given, batch, ANY, ignore_unknown), listed(gpus) or None)


def of(about: Job, gpus: Sequence[str] | None = None, tell: Tell = silent) -> Cards:
    """The cards of a subject that was read for the GPU `ANY`."""
    host_budget = None if about.host_assumed else about.setting.host_budget
    try:
        found = study.cards(about.programs, about.train.name, tell, host_budget, gpus)
    finally:
        tell("")
    rows = [card.row(about.batch) for card in found]
    document = Document(rows=rows, net=about.name, batch=about.batch, format=about.setting.format)
    title = f"{header.title(about)}. Simulated: the plans of best within each GPU's memory"
    if about.host_assumed:
        title += f", and {sizes.text(HOST)} of a host that is assumed (--host-budget)"
    return Cards(document, title)
