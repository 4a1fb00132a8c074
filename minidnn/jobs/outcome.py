"""What comes of a policy within budgets: a plan of a net's programs, simulated, or the refusal.

All predictions come from here: those of plan, compare, frontier, cards, board, tune and ranks, and of remedies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from minidnn.costs import Costs
from minidnn.jobs.plannable import Plannable
from minidnn.memory.budget import BudgetError, DiskError, RingError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import Trace, copied
from minidnn.memory.joint.bound import Bound
from minidnn.memory.joint.linear import NoSolver
from minidnn.memory.joint.variants import ProgramVariants
from minidnn.memory.planning import ENDLESS, ROUNDING, arrange
from minidnn.memory.schedule import Arrangement, Compute, Schedule
from minidnn.program import Program, SplitRegion
from minidnn.visible import say_once

WHOLE = "liveness:p"  # its arena is the most that a plan can use well: nothing moves, each op has its fastest algorithm


@dataclass(eq=False)
class Outcome:
    """A policy's plan, and a step of it by the simulator; or the refusal.

    plan:    of all programs; None: the budgets refuse it. `nearest` gives a refused policy the plan of larger budgets
    costs:   what it was planned with
    name:    the program whose steps count
    refused: why the budgets are not kept; None: they are
    bound:   seconds that no plan within the budget whose ops run on the device is below, as a whole, in parts that
             `best` tries, or in this plan's; None: unknown, or nobody asked
    gap:     the simulated seconds beyond the bound, as a part of it
    """

    policy: str
    plan: Arrangement | None
    costs: Costs
    name: str = "TRAIN"
    refused: BudgetError | None = None
    bound: float | None = None
    gap: float | None = None

    @property
    def fits(self) -> bool:
        return self.refused is None

    @property
    def why(self) -> str | None:
        return None if self.refused is None else str(self.refused)

    @property
    def arrangement(self) -> Arrangement:
        """The plan. Raises the refusal if there is none."""
        if self.plan is None:
            assert self.refused is not None
            raise self.refused
        return self.plan

    @property
    def schedule(self) -> Schedule:
        return self.arrangement.schedules[self.name]

    @cached_property
    def trace(self) -> Trace:
        return simulate(self.schedule, self.costs)

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return self.trace.seconds

    @cached_property
    def copies(self) -> dict[str, int]:
        """Bytes that a step copies, by what they are (memory/execution/trace.py)."""
        return copied(self.schedule.instructions, self.schedule)

    @property
    def moved(self) -> int:
        """Bytes that a step copies out and back, without inputs and outputs."""
        return self.copies["offload_bytes"] + self.copies["prefetch_bytes"]

    @property
    def recomputed(self) -> int:
        """Ops that run again in a step."""
        return sum(isinstance(x, Compute) and x.run > 0 for x in self.schedule.instructions)

    def set_bound(self, seconds: float | None) -> None:
        """Take these seconds as the bound, which must be of this plan's parts, too (`bound_of`). It holds for plans
        within the budget whose ops all run on the device."""
        if self.refused is None and not self.schedule.plan.host_ops:
            self.bound = seconds
            self.gap = over(self.seconds, seconds)


def over(seconds: float, bound: float | None) -> float | None:
    """The seconds beyond a bound, as a part of it, without what rounding leaves; None: there is no bound."""
    if not bound:
        return None
    part = seconds / bound - 1
    return part if abs(part) > ROUNDING else 0.0


def attempt(policy: str, costs: Costs, name: str, make: Callable[[], Arrangement]) -> Outcome:
    """The outcome of a plan that `make` gives, which may raise BudgetError."""
    try:
        return Outcome(policy, make(), costs, name)
    except BudgetError as refused:
        return Outcome(policy, None, costs, name, refused)


def outcome(
    programs: Sequence[Program],
    policy: str,
    costs: Costs,
    budget: int | None = None,
    host_budget: int | None = None,
    name: str = "TRAIN",
) -> Outcome:
    """The outcome of a policy within these budgets. The arguments and the other errors are those of `arrange`."""
    return attempt(policy, costs, name, lambda: arrange(programs, policy, costs, budget, host_budget))


def of_job(job: Plannable, policy: str, costs: Costs) -> Outcome:
    """The outcome of a policy for this job, within the budgets of its setting."""
    return outcome(job.programs, policy, costs, job.setting.budget, job.setting.host_budget, job.train.name)


def nearest(
    programs: Sequence[Program],
    policy: str,
    costs: Costs,
    budget: int | None = None,
    host_budget: int | None = None,
    name: str = "TRAIN",
) -> Outcome:
    """`outcome`; but a refused policy has the plan under the smallest budget that it can keep, with the smallest ring,
    or with as much of the disk as it wants. Raises the refusal if there is none."""
    first = outcome(programs, policy, costs, budget, host_budget, name)
    refused, staging = first.refused, costs.staging
    if refused is None:
        return first
    if isinstance(refused, RingError | DiskError):
        assert staging is not None
        if isinstance(refused, RingError):
            staging = replace(staging, ring=refused.smallest)
        else:
            assert staging.disk is not None
            staging = replace(staging, disk=replace(staging.disk, most=None))
        return replace(first, plan=nearest(programs, policy, replace(costs, staging=staging), budget, host_budget).plan)
    # If only the host budget was exceeded, the plan is the one that the device's budget allows.
    for limits in (*refused.kept[:1], (budget if refused.host else refused.needed, None)):
        if (larger := outcome(programs, policy, costs, *limits)).fits:
            return replace(first, plan=larger.plan)
    raise refused


def free(programs: Sequence[Program], costs: Costs, name: str = "TRAIN") -> Outcome:
    """The outcome of WHOLE if memory is no matter. It is not proved."""
    return attempt(WHOLE, costs, name, lambda: arrange(programs, WHOLE, costs, ENDLESS, proof=False))


# ---- the bound


@lru_cache(maxsize=4)
def bounds(program: Program, costs: Costs, host_budget: int | None) -> ProgramVariants:
    """The bounds of a program's plans (memory/joint/variants.py), kept for the next question. Raises NoSolver without
    the package highspy."""
    return ProgramVariants(program, replace(costs, host=host_budget))


@lru_cache(maxsize=32)
def bound_at(
    program: Program, costs: Costs, budget: int, host_budget: int | None, parts: tuple[SplitRegion, ...]
) -> Bound | None:
    """The bound within `budget` bytes of the device; None: no plan keeps it. The rest as of `bounds`.

    parts: those of a plan that is compared with it: the bound holds for plans in these, too; (): as a whole
    """
    return bounds(program, costs, host_budget).closest(budget, [parts])


@lru_cache(maxsize=4)
def _late(program: Program) -> Program:
    """The program with its inputs copied within the step, none double-buffered: the same one each time."""
    return program.synchronous_inputs()


def bound_of(one: Outcome, program: Program, budget: int, host_budget: int | None = None) -> Bound | None:
    """The bound of the outcome of this program within these budgets; None: there is none, as where tensors may leave
    for a peer, since it counts the link to the host. Raises NoSolver."""
    if one.refused is not None or one.schedule.plan.host_ops or one.costs.peers:
        return None
    planned = one.schedule.program
    return bound_at(
        program if planned.double_buffered else _late(program), one.costs, budget, host_budget, planned.parts
    )


def add_bound(one: Outcome, program: Program, budget: int | None, host_budget: int | None = None) -> None:
    """Give the outcome of this program within these budgets its bound, if there is a budget, and a solver."""
    if budget is None:
        return
    try:
        bound = bound_of(one, program, budget, host_budget)
    except NoSolver as reason:
        say_once(f"minidnn: there is no bound, since it {reason}")
        return
    one.set_bound(None if bound is None else bound.seconds)
