"""Time against bytes, from the least budget to all that a plan can use, above the bound."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from minidnn import sizes
from minidnn.api import header
from minidnn.api.answer import Answer, Tell, silent
from minidnn.api.plan import listed
from minidnn.costs import Costs
from minidnn.errors import InvalidInput
from minidnn.jobs.job import Source, read
from minidnn.jobs.outcome import Outcome, bound_of, bounds, free, outcome, over
from minidnn.jobs.plannable import Plannable
from minidnn.memory.joint.bound import Bound
from minidnn.memory.joint.linear import NoSolver
from minidnn.memory.joint.variants import ProgramVariants
from minidnn.memory.planning import synchronous
from minidnn.memory.policies import BUDGETED
from minidnn.memory.policies.check import check_policies, no_effort
from minidnn.program import Program, SplitRegion
from minidnn.report.frontier import LOOK
from minidnn.results.budgets import BoundRow, FrontierRow
from minidnn.results.budgets import Frontier as Document
from minidnn.spoken import option

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.jobs.setting import Given

POINTS = 12
BOUNDS = 64  # budgets at which the bound is drawn


class Frontier(Answer[Document, FrontierRow]):
    """The result of `minidnn.frontier`: a row for each policy at each budget that it keeps."""

    look = LOOK


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
    points:   number of budgets to try
    step:     bytes, such as "1GiB": plan for three budgets only, `budget`, and this much less and more
    keywords: as of `minidnn.plan`

    Raises NoSuchModel, NoSuchPolicy, InvalidFile, and InvalidInput, also if the package highspy is missing.
    """
    return of(read(net, given, batch, gpu, ignore_unknown), listed(policies), points, _bytes(step))


def of(
    job: Plannable, policies: Sequence[str] = (), points: int = POINTS, step: int | None = None, tell: Tell = silent
) -> Frontier:
    """The frontier of `best` and of these policies."""
    if points < 2:
        raise InvalidInput(f"{option('points')}: a frontier needs at least 2 budgets")
    check_policies(policies, whole=job.whole)
    no_effort(job.setting.effort, "frontier")
    costs = job.costs()
    budgets: list[int] = []
    budget = job.setting.budget
    if step is not None:
        if budget is None or step >= budget:
            raise InvalidInput(
                f"{option('step')}: needs a larger {option('budget')}, from which it is subtracted and to which it is "
                "added"
            )
        budgets = [budget - step, budget, budget + step]
    try:
        result = sweep(job.programs, policies, costs, points, job.train.name, tell, budgets, job.setting.host_budget)
    except NoSolver as reason:
        raise InvalidInput(f"a frontier {reason}") from None
    finally:
        tell("")
    return Frontier(Document(**result, **header.of_plan(job, costs)), header.title(job), header.notes(job, costs))


def _bytes(step: int | str | None) -> int | None:
    try:
        return None if step is None else sizes.parse(step)
    except ValueError as error:
        raise InvalidInput(f"{option('step')}: {error}") from None


def sweep(
    programs: Sequence[Program],
    policies: Sequence[str],
    costs: Costs,
    count: int,
    name: str = "TRAIN",
    tell: Tell = silent,
    budgets: Sequence[int] = (),
    host_budget: int | None = None,
) -> dict[str, Any]:
    """The plans of `best` and of these policies at `count` budgets, from the bound's least one to `WHOLE`'s arena: the
    rows, the bounds, and the least bytes of both, as a document has them.

    budgets: these are asked instead, in rising order
    host_budget: bytes on the host, pinned and pageable; None: no limit

    The programs' inputs come by offloads within the step, so that all rows mean the same. A plan for a smaller budget
    serves a larger one. So `best` never gets slower as the budget grows. A policy has no row at a budget that it cannot
    keep.

    Raises linear.NoSolver without the package highspy.
    """
    programs = synchronous(programs)
    train = next(program for program in programs if program.name == name)
    family = bounds(train, costs, host_budget)
    least, whole = family.least(), free(programs, costs, name).arrangement.arena
    reached = None
    if not budgets:
        tell(f"{BUDGETED}: the least budget")
        refused = outcome(programs, BUDGETED, costs, least, host_budget, name).refused
        reached = least if refused is None else refused.smallest
        between = [least + (whole - least) * k // (count - 1) for k in range(count)]
        budgets = [reached, *(budget for budget in between if budget > reached)]
    rows, parts = [], set[tuple[SplitRegion, ...]]()
    for policy in dict.fromkeys((BUDGETED, *policies)):
        before: Outcome | None = None
        for number, budget in enumerate(budgets):
            tell(f"{policy}: budget {number + 1} of {len(budgets)}")
            now = outcome(programs, policy, costs, budget, host_budget, name)
            if policy == BUDGETED and before and (not now.fits or before.seconds < now.seconds):
                now = before
            if now.fits:
                before = now
                rows.append(_row(now, budget, bound_of(now, train, budget, host_budget)))
                parts.add(now.schedule.program.parts)
    curve = _curve(family, least, whole, parts)
    return {"rows": rows, "bounds": curve, "least_bytes": least, "reached_bytes": reached}


def _curve(
    family: ProgramVariants, least: int, whole: int, parts: Collection[tuple[SplitRegion, ...]]
) -> list[BoundRow]:
    """The bound from `least` bytes to `whole`, also of plans in these parts. What bounds a larger budget bounds a
    smaller one."""
    rows, seconds = [], 0.0
    for k in reversed(range(BOUNDS + 1)):
        budget = least + (whole - least) * k // BOUNDS
        if (at := family.at(budget, parts)) is not None:
            seconds = max(seconds, at.seconds)
            rows.append(BoundRow(budget_bytes=budget, bound_seconds=seconds))
    return rows[::-1]


def _row(one: Outcome, budget: int, bound: Bound | None) -> FrontierRow:
    seconds, price = (None, None) if bound is None else (bound.seconds, bound.price)
    return FrontierRow(
        policy=one.policy, budget_bytes=budget, peak_bytes=one.arrangement.arena, step_seconds=one.seconds,
        bound_seconds=seconds, gap=over(one.seconds, seconds), price=price,
        offload_bytes=one.copies["offload_bytes"], host_bytes=one.arrangement.off_device,
        recomputed_ops=one.recomputed,
    )  # fmt: skip
