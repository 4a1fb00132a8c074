"""Policies side by side: run on a device from one start, or simulated on a GPU's profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minidnn.api import header
from minidnn.api.answer import Tell, silent
from minidnn.api.pictures import Pictured
from minidnn.api.plan import listed
from minidnn.backends import open_device
from minidnn.errors import InvalidInput
from minidnn.jobs import ranks
from minidnn.jobs.compare import simulated
from minidnn.jobs.job import Job, Source, read
from minidnn.jobs.plannable import Plannable
from minidnn.jobs.profile import run_here
from minidnn.measuring.spread import FEWEST
from minidnn.memory.policies import BUDGETED
from minidnn.memory.policies.check import check_policies, looking_longer
from minidnn.results.policies import Comparison as Document
from minidnn.spoken import many, option
from minidnn.training.comparison import ran
from minidnn.training.runners import runner

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.jobs.setting import Given

# The policies that are compared if none is named: one or more of each system. A simulated GPU offers several algorithms
# per op, and the papers measure against baseline with the fastest ones (":p"). With a budget, minidnn's own policy is
# one more.
RUN = ["baseline", "liveness", "vdnn_all", "vdnn_dyn", "vdnn_pp", "superneurons", "layrub", "accudnn"]
SIMULATED = ["baseline:p", "liveness:p", "vdnn_all:p", "vdnn_dyn", "vdnn_pp:p", "superneurons", "layrub:p", "accudnn:p"]


class Comparison(Pictured[Document]):
    """The result of `minidnn.compare`: a row per policy, with its measured or simulated step."""

    @property
    def equal(self) -> bool:
        """Whether every policy ended with the same bytes as baseline."""
        return not any(row.identical is False for row in self.rows)


def compare(
    net: Source,
    policies: Sequence[str] | str | None = None,
    *,
    steps: int | None = None,
    batch: int | None = None,
    gpu: str | None = None,
    ignore_unknown: bool = False,
    **given: Unpack[Given],
) -> Comparison:
    """Run policies in turn and compare their weights, bytes and times; with `gpu`, simulate them.

    net:      a Net, a solver's parameters, a file, or the name of a model
    policies: their names; None: one or more of each system
    steps:    steps to run; None: 8 to 300, the shorter a step, the more
    keywords: as of `minidnn.plan`

    Raises NoSuchModel, NoSuchPolicy, InvalidFile and InvalidInput.
    """
    return of(read(net, given, batch, gpu, ignore_unknown), listed(policies), steps)


def of(job: Plannable, policies: Sequence[str] = (), steps: int | None = None, tell: Tell = silent) -> Comparison:
    """The comparison of these policies."""
    setting = job.setting
    budgeted = [BUDGETED] if setting.budget is not None else []
    policies = policies or [*(SIMULATED if job.gpu is not None and job.several else RUN), *budgeted]
    check_policies(policies, whole=job.whole)
    predicted = job.gpu is not None or setting.ranks is not None or setting.facts.planning_only()
    if not isinstance(job, Job) or predicted:
        with looking_longer(policies, setting.effort):
            return _simulated(job, policies)
    if setting.effort is not None:
        raise InvalidInput(
            f"{option('effort')}: a comparison that runs policies plans twice; write the plan (`minidnn plan --effort "
            f"SECONDS --save FILE.plan`), and compare that ({option('policies', 'FILE.plan')})"
        )
    return _ran(job, policies, steps, tell)


def _simulated(job: Plannable, policies: Sequence[str]) -> Comparison:
    setting, costs = job.setting, job.costs()
    results = simulated(
        job.programs, policies, costs, setting.budget, setting.host_budget, setting.facts.name, job.train.name
    )
    for r in results:
        r.more |= ranks.columns(job, r.policy, r.arrangement, costs)
    document = Document(rows=[r.row() for r in results], **header.of_plan(job, costs))
    limit = costs.memory if setting.budget is None and job.gpu is not None else setting.budget
    return Comparison(document, header.title(job), header.notes(job, costs), results, limit)


def _ran(job: Job, policies: Sequence[str], steps: int | None, tell: Tell) -> Comparison:
    setting, costs, device = job.setting, run_here(job), open_device(job.setting.device)
    budgets = setting.budget, setting.host_budget
    try:
        results = ran(runner(job), job.programs, policies, costs, *budgets, steps, job.train.name, tell)
    finally:
        tell("")
    rows = [r.row() for r in results]
    document = Document(rows=rows, **header.of_run(job, device), beside_arena_bytes=device.beside())
    timed = max(len(r.steps) for r in results)
    intervals = "95 % intervals" if timed >= FEWEST else "minimum and maximum"
    each = f"{many(timed, 'timed step')} each"
    starts = max(r.more.get("starts", 1) for r in results)
    of = f" of {starts} starts" if starts > 1 else ""
    planned = f" Planned with {costs.origin} costs."
    notes = f"{each}{of}, in turn; medians, with {intervals}. On {header.device_of(device)}.{planned}"
    return Comparison(document, header.title(job), notes, results, setting.budget)
