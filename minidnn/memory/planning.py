"""From programs, a policy and a budget to proved schedules, or to a refusal that says what would work.

Nothing is allocated here: a budget that cannot be kept is refused while everything is still a plan.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from minidnn.costs import Costs
from minidnn.memory.budget import RingError, host_refusal, refusal
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import homes, place
from minidnn.memory.lowering.staging import RingTooSmall, staged
from minidnn.memory.plan import complete
from minidnn.memory.policies import find
from minidnn.memory.policies.plan_file import SUFFIX, PlanError
from minidnn.memory.proof.verify import ScheduleError, verify_all
from minidnn.memory.schedule import Arrangement, Schedule
from minidnn.program import Program
from minidnn.sizes import text


@contextmanager
def _collecting_nothing() -> Iterator[None]:
    """Planning makes very many values and no garbage in cycles. Python's collector would walk them all again each
    time their number has grown by a quarter: on nets of 10,000 ops that is half of all time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_collecting_nothing()
def arrange(
    programs: Sequence[Program],
    policy: str,
    costs: Costs,
    budget: int | None = None,
    host_budget: int | None = None,
    proof: bool = True,
) -> Arrangement:
    """Plan, lower, place and prove every program; all share one arena and agree on the homes of what they carry.

    budget: device bytes; None means all the device has. Raises BudgetError where it (or the host's) is exceeded,
    NoSuchPolicy for an unknown policy, PlanError for a plan file that is of another net or device, or does not hold.
    `proof=False` is for studies that lower thousands of plans.
    """
    with _edited(policy):
        return _arrange(programs, policy, costs, budget, host_budget, proof)


@contextmanager
def _edited(policy: str) -> Iterator[None]:
    """A file's plan may have been changed by hand, so that what is wrong with it is nobody's bug."""
    try:
        yield
    except (ValueError, ScheduleError) as error:
        if not policy.endswith(SUFFIX) or isinstance(error, PlanError):
            raise
        raise PlanError(f"{policy}: the plan does not hold: {error}") from error


def _arrange(
    programs: Sequence[Program],
    policy: str,
    costs: Costs,
    budget: int | None,
    host_budget: int | None,
    proof: bool,
) -> Arrangement:
    limit = costs.memory if budget is None else budget
    schedules = unproved(programs, policy, costs, limit)
    found = Arrangement.of(policy, schedules, budget)
    if found.arena > limit:
        least = Arrangement.of(policy, unproved(programs, policy, costs, 0), 0)
        raise refusal(policy, schedules, limit, budget is None, costs, least.arena)
    if host_budget is not None and found.off_device > host_budget:
        raise host_refusal(policy, schedules.values(), found.off_device, host_budget)
    if proof:
        verify_all(schedules.values(), limit)
    return found


@_collecting_nothing()
def unproved(programs: Sequence[Program], policy: str, costs: Costs, limit: int) -> dict[str, Schedule]:
    """What the policy makes of each program when it is told `limit` bytes, kept or not; not proved. For studies that
    look for what can be kept: `arrange` is for all else."""
    decide = find(policy)
    fixed, base = homes(t for program in programs for t in program.carried)
    schedules: dict[str, Schedule] = {}
    for program in programs:
        others = base - homes(program.carried)[1]  # a policy knows of its own program's alone
        plan = complete(program, costs, decide(program, costs, max(0, limit - others)))
        listing = lower(program, plan)
        if costs.staging is not None:
            try:
                listing = staged(listing, costs.staging)
            except RingTooSmall as error:
                raise RingError(
                    f"{policy}: {error}; the smallest ring that it can use is {text(error.needed)}",
                    costs.staging.ring,
                    error.needed,
                    host=True,
                ) from None
        schedules[program.name] = place(listing, fixed, base)
    return schedules
