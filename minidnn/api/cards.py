"""Which of the known GPUs is enough for a net, and at what loss of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minidnn.api.answer import Answer, Tell, silent
from minidnn.report import cards as report
from minidnn.results.budgets import CardRow
from minidnn.results.budgets import Cards as Document
from minidnn.study import cards as study
from minidnn.study import subject
from minidnn.study.subject import Source, Subject

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.training.setting import Given

ANY = "any"  # a GPU whose ops are fused as for any other


class Cards(Answer[Document, CardRow]):
    """The result of `minidnn.cards`: a row for each GPU with a profile, the least memory first."""

    def cells(self) -> tuple[list[str], list[list[str]]]:
        return report.cells(self.rows)

    def says(self) -> list[str]:
        return report.says(self.rows)


def cards(net: Source, *, batch: int | None = None, ignore_unknown: bool = False, **given: Unpack[Given]) -> Cards:
    """Plan a net within the memory of each GPU that has a profile, and simulate a step there.

    net:      a Net, a solver's parameters, a file, or the name of a model
    keywords: as of `minidnn.plan`

    Raises NoSuchModel, InvalidFile and InvalidInput.
    """
    return of(subject.read(net, given, batch, ANY, ignore_unknown))


def of(about: Subject, tell: Tell = silent) -> Cards:
    """The cards of a subject that was read for the GPU `ANY`."""
    try:
        found = study.cards(about.programs, about.train.name, tell)
    finally:
        tell("")
    rows = [card.row(about.batch) for card in found]
    document = Document(rows=rows, net=about.name, batch=about.batch, format=about.setting.format)
    return Cards(document, f"{about.titled()}. Simulated: the plans of best within each GPU's memory")
