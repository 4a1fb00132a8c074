"""Plans of a net under policies: made, proved and simulated. Nothing runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from minidnn.api import header
from minidnn.api.answer import Tell, silent
from minidnn.api.pictures import Pictured
from minidnn.costs import Costs
from minidnn.jobs import ranks
from minidnn.jobs.change import Change
from minidnn.jobs.compare import Result, simulated
from minidnn.jobs.job import Source, read
from minidnn.jobs.outcome import Outcome, attempt, nearest
from minidnn.jobs.plannable import Plannable
from minidnn.jobs.ram import Ram
from minidnn.jobs.remedies import remedies
from minidnn.memory.budget import BudgetError, RamError, of_budget
from minidnn.memory.moment import moment, placed
from minidnn.memory.policies.check import check_policies, looking_longer
from minidnn.memory.schedule import Schedule
from minidnn.program import Program
from minidnn.report import policies as report
from minidnn.results.policies import Peak, Refusal
from minidnn.results.policies import Plans as Document

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.jobs.setting import Given


class Plans(Pictured[Document]):
    """The result of `minidnn.plan`: a row per policy, and the schedules behind them.

    results: by policy, in the order of the rows; costs: what they were planned with
    rams:    the bytes of this machine's memory that a run of each policy would take, if minidnn runs the net
    """

    def __init__(self, job: Plannable, costs: Costs, results: Sequence[Result], rams: dict[str, Ram]) -> None:
        notes = header.notes(job, costs)
        document = Document(
            rows=[r.row() for r in results], **header.of_plan(job, costs), **_of_source(job, results, costs)
        )
        super().__init__(document, header.title(job), notes, results, job.setting.budget)
        self.job, self.costs, self.rams = job, costs, rams

    def show(self) -> None:
        """Print the table; of a module of PyTorch, what lives at each peak and what PyTorch takes, too."""
        super().show()
        self.show_peaks()
        if self.document.pytorch:
            report.show_pytorch(self.document.pytorch)

    def show_peaks(self) -> None:
        """Print what lives at the peak of each policy that keeps the budget, where there is a source."""
        for peak, row in zip(self.document.peaks or (), self.rows, strict=False):
            if row.fits:
                report.show_roles(peak, row.role_bytes)

    def _noted(self) -> str:
        return " ".join(filter(None, (self.notes, report.of_pytorch(self.document.pytorch or ()))))

    def schedule(self, policy: str, program: str | None = None) -> Schedule:
        """The proved schedule of a policy, for the training program or the named one. Raises KeyError."""
        result = {r.policy: r for r in self.results}[policy]
        return result.schedule if program is None else result.arrangement.schedules[program]

    def explain(self, tell: Tell = silent) -> Refusal | None:
        """Explain why the only policy was refused, and find what would fit. Each change is tried, which takes seconds.

        Returns None if no budget was refused, or if there are several policies. Afterwards the document contains
        the explanation, too."""
        error = self.results[0].refused if len(self.results) == 1 else None
        if error is None or not of_budget(error):
            return None
        text = _answer(self.job, self.results[0].policy, error, self.costs, tell)
        self.document = self.document.model_copy(update={"refused": text})
        return text


def plan(
    net: Source,
    policies: Sequence[str] | str | None = None,
    *,
    batch: int | None = None,
    gpu: str | None = None,
    ignore_unknown: bool = False,
    shape: Mapping[str, tuple[int, ...]] | None = None,
    **given: Unpack[Given],
) -> Plans:
    """Plan a net under policies; prove the plans, and simulate a step of each.

    net:      a Net, a solver's parameters, a file, or the name of a model ("resnet50", "digits_solver")
    policies: their names; None: `policy`, else the solver file's, else the default
    batch:    the batch size to use instead of the net's
    gpu:      the GPU to simulate ("titan_x", "h200", "h200:fp32", or a FILE.yaml); None: plan for `device`
    shape:    shapes by top of a data layer, which replace its data: {"data": (64, 1, 28, 28)}
    keywords: how the net is run (`Given` in jobs/setting.py): budget="64MiB", device="cpu", format="float16", ...

    A policy that cannot keep the budget has a row, too: its `fits` is false, and `why` gives the reason.
    Raises NoSuchModel, NoSuchPolicy, InvalidFile and InvalidInput.
    """
    job = read(net, given, batch, gpu, ignore_unknown, shapes=shape or {})
    return of(job, listed(policies) or [job.setting.policy])


def listed(policies: Sequence[str] | str | None) -> list[str]:
    """The names as a list; a text has commas between them."""
    if isinstance(policies, str):
        return [name.strip() for name in policies.split(",") if name.strip()]
    return list(policies or [])


def of(job: Plannable, policies: Sequence[str]) -> Plans:
    """The plans of these policies."""
    check_policies(policies, whole=job.whole)
    setting = job.setting
    costs = job.costs()
    here = job.residence(unread=True)

    name = job.train.name

    def within_ram(policy: str) -> Outcome:
        assert here is not None
        one = attempt(policy, costs, name, lambda: here.arranged(job.programs, policy, costs, setting))
        if one.fits:
            return one
        budgeted = nearest(job.programs, policy, costs, setting.budget, setting.host_budget, name)
        return replace(budgeted, refused=one.refused) if isinstance(one.refused, RamError) else budgeted

    with looking_longer(policies, setting.effort):
        results = simulated(
            job.programs, policies, costs, setting.budget, setting.host_budget, setting.facts.name, name,
            None if setting.ram is None or here is None else within_ram,
        )  # fmt: skip
    for r in results:
        r.more |= ranks.columns(job, r.policy, r.arrangement, costs)
    rams = {} if here is None else {r.policy: here.ram(r.arrangement) for r in results}
    if setting.ram is not None:  # else rows hold nothing of this process, and are the same each time
        for r in results:
            r.more |= rams[r.policy].row()
    return Plans(job, costs, results, rams)


def _of_source(job: Plannable, results: Sequence[Result], costs: Costs) -> dict[str, Any]:
    """What a document says where there is a source, whose lines it can name."""
    if job.places is None:
        return {}
    peaks = []
    for r in results:
        then = placed(moment(r.schedule, r.schedule.peak_point, costs).row(), job.places)
        peaks.append(Peak(policy=r.policy, **then))
    return {"peaks": peaks, "pytorch": list(job.beside())}


def _answer(job: Plannable, policy: str, refused: BudgetError, costs: Costs, tell: Tell) -> Refusal:
    """Why the policy was refused, and what would fit (jobs/remedies.py, report/refusal.py)."""
    asked = job.command(policy)

    def varied(change: Change, sizes: bool = False) -> tuple[tuple[Program, ...], Costs]:
        known = job.costs_after(change, costs, sizes)
        staging = costs.staging
        if change.host_ring is not None and staging is not None:
            staging = replace(staging, ring=change.host_ring)
        return job.changed(change).programs, replace(known, staging=staging)

    try:
        result = remedies(asked, refused, varied, job.train.name, tell, job.places)
        return result.model_copy(update={"tokens": job.tokens})
    finally:
        tell("")
