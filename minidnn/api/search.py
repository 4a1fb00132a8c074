"""The largest batch, image size or depth that each policy places within a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from minidnn import sizes
from minidnn.api import header
from minidnn.api.answer import Answer, Tell, silent
from minidnn.api.plan import listed
from minidnn.costs import Costs
from minidnn.errors import InvalidInput, near
from minidnn.jobs.job import Job, Source, read
from minidnn.jobs.search import Largest, Try, excluded, largest
from minidnn.jobs.sized import KINDS, Read, Sized
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.joint.linear import NoSolver
from minidnn.memory.policies import names
from minidnn.memory.policies.check import check_policies, no_effort
from minidnn.report import search as report
from minidnn.results.budgets import Excluded, SearchRow
from minidnn.results.budgets import Search as Document
from minidnn.visible import say_once

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.jobs.setting import Given

SECONDS = 600
Watch = Callable[[str, int, Try], None]  # (policy, bytes of the budget, one plan)


class Search(Answer[Document, SearchRow]):
    """The result of `minidnn.search`: a row per policy."""

    look = report.look("batch")

    def __init__(self, document: Document, title: str, max: str) -> None:
        """max: "batch", "size", "tokens" or "depth" """
        super().__init__(document, title)
        self.look = report.look(max)


def search(
    net: Source,
    max: Literal["batch", "size", "tokens", "depth"] = "batch",
    policies: Sequence[str] | str | None = None,
    *,
    step: int | None = None,
    seconds: float = SECONDS,
    batch: int | None = None,
    gpu: str | None = None,
    ignore_unknown: bool = False,
    **given: Unpack[Given],
) -> Search:
    """Find the largest size whose plan keeps the budget, for each policy.

    net:      a Net, a solver's parameters, a file, or the name of a model; for "depth" the name of a family ("resnet")
    max:      what to maximize: the "batch", the "size" of images in pixels per side, the "tokens" per sample, or the
              "depth"
    policies: their names; None: `policy`, else all policies and their variants
    step:     try only multiples of this number
    seconds:  time limit per policy, after which no further size is tried
    keywords: as of `minidnn.plan`

    Raises NoSuchModel, NoSuchPolicy, InvalidFile and InvalidInput.
    """

    def one(source: Source) -> Job:
        return read(source, given, batch, gpu, ignore_unknown)

    chosen = listed(policies) or listed(given.get("policy"))
    return of(net, one, max, chosen, step, seconds)


def of(
    source: Source,
    read: Read,
    max: str,
    policies: Sequence[str] = (),
    step: int | None = None,
    seconds: float = SECONDS,
    watch: Watch = lambda policy, budget, tried: None,
    tell: Tell = silent,
    interrupted: Callable[[Search], object] = lambda found: None,
) -> Search:
    """The search.

    interrupted: gets the rows that were found before an error or Ctrl-C, since they took long to find"""
    if max not in KINDS:
        raise InvalidInput(f"max: one of {', '.join(KINDS)}, not {max!r}{near(max, KINDS)}")
    policies = policies or names()
    check_policies(policies, sizes=True)
    sized = KINDS[max](source, read, step)
    job = sized.job
    check_policies(policies, sizes=True, whole=job.whole)
    costs = job.costs_of_sizes()
    setting = job.setting
    no_effort(setting.effort, "search")
    budget = costs.memory if setting.budget is None else setting.budget
    rows: list[SearchRow] = []
    beyond = None

    def answer() -> Search:
        fields = {**header.of_plan(job, costs), "net": sized.model, "batch": None if max == "batch" else job.batch}
        document = Document(rows=rows, budget_bytes=budget, excluded=beyond, **fields)
        title = sized.model if max == "batch" else f"{sized.model}, batch {job.batch}"
        title += ", pixels a side" if max == "size" else ""
        return Search(document, f"{title}, {sizes.text(budget)}. {header.notes(job, costs)}", max)

    try:
        for policy in policies:
            result = largest(
                sized.make, sized.series, policy, costs, budget, sized.probes, setting.host_budget, seconds,
                partial(watch, policy, budget),
            )  # fmt: skip
            rows.append(_row(result, max, sized, costs, budget))
        beyond = _excluded(sized, replace(costs, host=setting.host_budget), budget, rows, max, tell)
    except BaseException:
        if rows:
            interrupted(answer())
        raise
    return answer()


def _excluded(sized: Sized, costs: Costs, budget: int, rows: Any, what: str, tell: Tell) -> Excluded | None:
    """The smallest size that the bound excludes; None if there is none, or no solver."""
    most = max((row[what] for row in rows if row[what] is not None), default=None)

    def ask(size: int) -> None:
        tell(f"the bound of {what} {size}")

    try:
        return excluded(sized.make, sized.series, costs, budget, most, what, ask)
    except NoSolver as reason:
        say_once(f"minidnn: no bound, since that {reason}")
        return None
    finally:
        tell("")


def _row(found: Largest, what: str, sized: Sized, costs: Costs, budget: int) -> SearchRow:
    arrangement, above, job = found.arrangement, found.refused, sized.job
    schedule = None if arrangement is None else arrangement.schedules[job.train.name]
    size = {
        "batch": None if what == "batch" else job.batch,
        "size": None,
        "tokens": None,
        "depth": None,
        what: found.size,
    }
    return SearchRow(
        policy=found.policy,
        net=sized.model,
        **size,
        peak_bytes=None if arrangement is None else arrangement.arena,
        live_peak_bytes=None if schedule is None else schedule.live_peak,
        arena_bytes=None if schedule is None else schedule.arena,
        host_bytes=None if arrangement is None else arrangement.off_device,
        step_seconds=None if schedule is None else simulate(schedule, costs).seconds,
        budget_bytes=budget,
        next=None if above is None else above.size,
        next_peak_bytes=None if above is None else above.arena,
        next_host_bytes=None if above is None else above.host,
        plans=len(found.tried),
        ended=found.ended,
        multiple_of=found.multiple,
        search_seconds=found.seconds,
    )
