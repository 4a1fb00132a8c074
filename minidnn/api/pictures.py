"""Rows of policies with a picture of each one's step: what `plan` and `compare` return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from minidnn import sizes
from minidnn.api.answer import Answer
from minidnn.api.steps import Steps
from minidnn.jobs.compare import Result
from minidnn.report import compare as page
from minidnn.report import policies as report
from minidnn.report.draw import picture
from minidnn.report.look import Look
from minidnn.report.markup import placeless
from minidnn.report.panel import Panel, panel
from minidnn.report.step import Step
from minidnn.report.table import duration
from minidnn.results.policies import Comparison, Plans, PolicyRow
from minidnn.version import __version__

D = TypeVar("D", bound=Plans | Comparison)


class Pictured(Answer[D, PolicyRow]):
    """A row per policy. limit: bytes that were allowed; None: as many as there are."""

    look = Look(lambda document: report.cells(document["rows"]), lambda document: report.says(document["rows"]))

    def __init__(self, document: D, title: str, notes: str, results: Sequence[Result], limit: int | None) -> None:
        super().__init__(document, title, notes)
        self.results, self.limit = results, limit

    @property
    def rows(self) -> list[PolicyRow]:
        return self.document.rows

    def show(self) -> None:
        report.show(self.rows, f"{self.title}. {self.notes}")

    @classmethod
    def suffixes(cls) -> list[str]:
        return [".html", ".svg", ".png", ".csv", ".json"]

    def panels(self) -> list[Panel]:
        """The data of each policy's picture."""
        result = []
        for r, row in zip(self.results, self.rows, strict=True):
            shown = row.model_copy(update={"policy": placeless(r.policy), "why": row.why and placeless(row.why)})
            result.append(panel(shown.policy, shown, r.schedule, r.trace))
        return result

    def steps(self, policy: str | None = None) -> Steps:
        """The drawn step of one policy, or of all, which can be written for other tools.

        Steps of a policy that was run are measured, others simulated. Raises KeyError for a policy without a row."""
        device = self.document.device
        result = [Step(r.policy, r.schedule, r.trace, bool(r.steps), device) for r in self.results]
        if policy is not None:
            result = [{s.policy: s for s in result}[policy]]
        text = {name: getattr(self.document, name) for name in ("net", "batch", "format", "device", "origin")}
        return Steps(result, text, self._heading(), self.notes, self.limit)

    def _heading(self) -> str:
        return self.title + (f", in {sizes.text(self.limit)}" if self.limit is not None else "")

    def picture(self) -> str:
        return picture(self.panels(), self.limit, self._heading(), placeless(self._noted()))

    def page(self) -> str:
        return page.page(self.panels(), self.limit, self._heading(), placeless(self._noted()), __version__)

    def _noted(self) -> str:
        """The notes of a picture."""
        return self.notes

    def brief(self) -> list[str]:
        return [
            f"{r.policy}: {sizes.text(r.peak_bytes)}, {duration(r.step_seconds) if r.fits else 'refused'}"
            for r in self.rows
        ]
