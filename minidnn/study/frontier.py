"""The frontier: seconds of a step against the bytes that it may use, for `best` and for other policies, by the
simulator; and below them the bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from minidnn.costs import Costs
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import copied
from minidnn.memory.joint.bound import Bound
from minidnn.memory.joint.family import Family
from minidnn.memory.planning import arrange
from minidnn.memory.policies import BUDGETED
from minidnn.memory.schedule import Arrangement, Compute
from minidnn.program import Program
from minidnn.results.budgets import FrontierRow

WHOLE = (
    "liveness:p"  # its arena is the most that a plan can use well: nothing moves, every op has its fastest algorithm
)
BOUNDS = 64  # budgets at which the bound is drawn
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """A policy's plan under one budget."""

    policy: str
    budget: int  # bytes that it was allowed
    peak: int  # bytes of its arena
    seconds: float
    bound: float | None  # seconds that no plan of whole ops within the budget is below
    price: float | None  # seconds that one byte more saves, by the bound
    offloaded: int  # bytes
    host: int  # bytes on the host
    recomputed: int  # ops

    @property
    def gap(self) -> float | None:
        return None if self.bound is None else self.seconds / self.bound - 1

    def row(self) -> FrontierRow:
        return FrontierRow(
            policy=self.policy, budget_bytes=self.budget, peak_bytes=self.peak, step_seconds=self.seconds,
            bound_seconds=self.bound, gap=self.gap, price=self.price, offload_bytes=self.offloaded,
            host_bytes=self.host, recomputed_ops=self.recomputed,
        )  # fmt: skip


@dataclass
class Frontier:
    """
    points: of each policy, in order of budgets; a policy that cannot keep a budget has none there
    bounds: (bytes, seconds), the least seconds of a plan of whole ops within so many bytes
    least:  bytes; the bound excludes every budget below
    reached: bytes, the least budget that `best` keeps, and the first of the points; None: that was not asked
    """

    points: list[Point] = field(default_factory=list)
    bounds: list[tuple[int, float]] = field(default_factory=list)
    least: int = 0
    reached: int | None = None


def frontier(
    programs: Sequence[Program],
    policies: Sequence[str],
    costs: Costs,
    count: int,
    name: str = "TRAIN",
    tell: Tell = lambda text: None,
    budgets: Sequence[int] = (),
    host_budget: int | None = None,
) -> Frontier:
    """The plans of `best` and of these policies at `count` budgets, from the bound's least one to `WHOLE`'s arena.

    budgets: these are asked instead, in rising order
    host_budget: bytes on the host, pinned and pageable; None: no limit

    The programs' inputs come by trips within the step, so that all points mean the same. A plan for a smaller budget
    serves a larger one. So `best` never gets slower as the budget grows.

    Raises linear.NoSolver without the package highspy.
    """
    programs = [program.late() for program in programs]
    train = next(program for program in programs if program.name == name)
    bound = Family(train, replace(costs, host=host_budget))
    found = Frontier(least=bound.least())
    whole = arrange(programs, WHOLE, costs, 1 << 62, proof=False).arena
    seconds = 0.0  # what bounds a larger budget bounds a smaller one
    for k in reversed(range(BOUNDS + 1)):
        budget = found.least + (whole - found.least) * k // BOUNDS
        if (at := bound.at(budget)) is not None:
            seconds = max(seconds, at.seconds)
            found.bounds.insert(0, (budget, seconds))
    if not budgets:
        budgets = [found.least + (whole - found.least) * k // (count - 1) for k in range(count)]
        tell(f"{BUDGETED}: the least budget")
        found.reached = _kept(programs, costs, found.least, host_budget)
        budgets = [found.reached, *(budget for budget in budgets if budget > found.reached)]
    limits = {budget: bound.closest(budget) for budget in budgets}
    for policy in dict.fromkeys((BUDGETED, *policies)):
        before: tuple[Arrangement, float] | None = None
        for number, budget in enumerate(budgets):
            tell(f"{policy}: budget {number + 1} of {len(budgets)}")
            now: tuple[Arrangement, float] | None
            try:
                arrangement = arrange(programs, policy, costs, budget, host_budget)
                now = arrangement, simulate(arrangement.schedules[name], costs).seconds
            except BudgetError:
                now = None
            if policy == BUDGETED and before and (now is None or before[1] < now[1]):
                now = before
            if now is not None:
                before = now
                found.points.append(_point(policy, budget, *now, limits[budget], name))
    return found


def _kept(programs: Sequence[Program], costs: Costs, least: int, host_budget: int | None) -> int:
    """Bytes: the least budget from `least` on that `best` keeps."""
    try:
        arrange(programs, BUDGETED, costs, least, host_budget)
    except BudgetError as refused:
        return refused.smallest
    return least


def _point(policy: str, budget: int, found: Arrangement, seconds: float, bound: Bound | None, name: str) -> Point:
    schedule = found.schedules[name]
    moved = copied(schedule.instructions, schedule)["offload_bytes"]
    again = sum(isinstance(x, Compute) and x.run > 0 for x in schedule.instructions)
    limit, price = (None, None) if bound is None else (bound.seconds, bound.price)
    return Point(policy, budget, found.arena, seconds, limit, price, moved, found.off_device, again)
