"""A net's layers: what each gives, its parameters, operations and bytes. Nothing is planned."""

from __future__ import annotations

from typing import Literal

from minidnn.api.answer import Answer
from minidnn.jobs.job import Source, understood
from minidnn.report import summary as report
from minidnn.results.summary import LayerRow, Summary
from minidnn.study.summary import summary


class Shown(Answer[Summary, LayerRow]):
    """The result of `minidnn.show`: a row per layer, in forward order."""

    def cells(self) -> tuple[list[str], list[list[str]]]:
        return report.cells(self.document)

    def says(self) -> list[str]:
        return report.says(self.document)


def show(
    net: Source,
    *,
    phase: Literal["TRAIN", "TEST"] = "TRAIN",
    batch: int | None = None,
    format: str = "float32",
    ignore_unknown: bool = False,
) -> Shown:
    """The layers of a net.

    net:    a Net, a solver's parameters, a file, or the name of a model
    phase:  "TRAIN" or "TEST"
    batch:  the batch size to use instead of the net's
    format: the number format of its feature maps

    Raises NoSuchModel, InvalidFile and InvalidInput. Data need not be there.
    """
    found, tests, _ = understood(net, batch, ignore_unknown, simulated=True)
    document = summary(tests[0] if phase == "TEST" and tests else found, phase, format)
    of_batch = f", batch {document.batch}" if document.batch else ""
    return Shown(document, f"{document.net}{of_batch}, phase {phase}")
