"""Time against bytes, from the least budget to all that a plan can use, above the bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from minidnn import sizes
from minidnn.api import header
from minidnn.api.answer import Answer, Tell, silent
from minidnn.api.plan import listed
from minidnn.errors import InvalidInput
from minidnn.jobs.job import Job, Source, read
from minidnn.memory.joint.linear import NoSolver
from minidnn.memory.policies.check import check_policies
from minidnn.report import frontier as report
from minidnn.results.budgets import BoundRow, FrontierRow
from minidnn.results.budgets import Frontier as Document
from minidnn.study import frontier as study

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.jobs.setting import Given

POINTS = 12


class Frontier(Answer[Document, FrontierRow]):
    """The result of `minidnn.frontier`: a row for each policy at each budget that it keeps."""

    pictured: ClassVar[bool] = True

    def __init__(self, document: Document, title: str, notes: str) -> None:
        super().__init__(document, title)
        self.notes = notes

    def cells(self) -> tuple[list[str], list[list[str]]]:
        return report.cells(self.rows)

    def says(self) -> list[str]:
        return [self.notes, *report.says(self.document.least_bytes, self.document.reached_bytes)]

    def picture(self) -> str:
        bounds = [(b.budget_bytes, b.bound_seconds) for b in self.document.bounds]
        return report.picture(self.rows, bounds, f"{self.title}: seconds of a step against its bytes", self.notes)


def frontier(
    net: Source,
    policies: Sequence[str] | str | None = None,
    *,
    points: int = POINTS,
    step: int | str | None = None,
    batch: int | None = None,
    gpu: str | None = None,
    ignore_unknown: bool = False,
    **given: Unpack[Given],
) -> Frontier:
    """Plan `best`, and other policies, at many budgets, and simulate a step of each plan.

    net:      a Net, a solver's parameters, a file, or the name of a model
    policies: others than `best`
    points:   budgets that are tried
    step:     bytes, such as "1GiB": ask three budgets only, `budget`, so much less and so much more
    keywords: as of `minidnn.plan`

    Raises NoSuchModel, NoSuchPolicy, InvalidFile, and InvalidInput, also without the package highspy.
    """
    return of(read(net, given, batch, gpu, ignore_unknown), listed(policies), points, _bytes(step))


def of(
    about: Job, policies: Sequence[str] = (), points: int = POINTS, step: int | None = None, tell: Tell = silent
) -> Frontier:
    """The frontier of `best` and of these policies."""
    if points < 2:
        raise InvalidInput("--points: a frontier has two or more")
    check_policies(policies)
    costs = about.costs()
    budgets: list[int] = []
    budget = about.setting.budget
    if step is not None:
        if budget is None or step >= budget:
            raise InvalidInput("--step: needs a larger --budget, which it is taken from and added to")
        budgets = [budget - step, budget, budget + step]
    try:
        found = study.frontier(
            about.programs, policies, costs, points, about.train.name, tell, budgets, about.setting.host_budget
        )
    except NoSolver as reason:
        raise InvalidInput(f"a frontier {reason}") from None
    finally:
        tell("")
    document = Document(
        rows=[p.row() for p in found.points],
        bounds=[BoundRow(budget_bytes=b, bound_seconds=s) for b, s in found.bounds],
        least_bytes=found.least,
        reached_bytes=found.reached,
        **header.of_plan(about, costs),
    )
    return Frontier(document, header.title(about), header.notes(about, costs))


def _bytes(step: int | str | None) -> int | None:
    try:
        return None if step is None else sizes.parse(step)
    except ValueError as error:
        raise InvalidInput(f"step: {error}") from None
