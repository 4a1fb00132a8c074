"""From programs, a policy and a budget to proved schedules, or to a refusal that says what would work.

Nothing is allocated here: a budget that cannot be kept is refused while everything is still a plan.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from minidnn.costs import Costs
from minidnn.errors import BadInput
from minidnn.memory.lower import lower
from minidnn.memory.placement import homes, place
from minidnn.memory.plan import complete
from minidnn.memory.plan_file import SUFFIX, PlanError
from minidnn.memory.policies import find
from minidnn.memory.schedule import Arrangement, Schedule
from minidnn.memory.staging import RingTooSmall, staged
from minidnn.memory.verify import ScheduleError, verify_all
from minidnn.program import Program, Tensor
from minidnn.sizes import text

NAMED = 6  # tensors a refusal lists by name


class BudgetError(BadInput):
    """A policy cannot keep a budget. `needed` and `smallest` are bytes: what this plan takes, and what the policy
    would take at its leanest; on the host, if `host`, else on the device."""

    def __init__(self, message: str, needed: int, smallest: int, host: bool = False) -> None:
        super().__init__(message)
        self.needed, self.smallest, self.host = needed, smallest, host


class RingError(BudgetError):
    """A ring is too small for what a policy moves. `needed` is its size, `smallest` that of one that would do."""


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
    arena = max(s.arena for s in schedules.values())
    ring = max(s.ring for s in schedules.values())
    store = max(s.store_bytes for s in schedules.values())
    host = sum(s.host_bytes for s in schedules.values()) + ring
    if arena > limit:
        least = unproved(programs, policy, costs, 0)
        raise _refusal(policy, schedules, limit, budget is None, costs, max(s.arena for s in least.values()))
    if host_budget is not None and host + store > host_budget:
        raise _host_refusal(policy, schedules.values(), host + store, host_budget)
    if proof:
        verify_all(schedules.values(), limit)
    return Arrangement(policy, schedules, arena, host, budget, ring, store)


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


def _refusal(
    policy: str, schedules: Mapping[str, Schedule], limit: int, whole: bool, costs: Costs, smallest: int
) -> BudgetError:
    worst = max(schedules.values(), key=lambda s: s.arena)
    point = worst.peak_point
    live = worst.live(point)
    names = ", ".join(f"{b.label} {text(b.nbytes)}" for b in live[:NAMED])
    if len(live) > NAMED:
        names += f", and {len(live) - NAMED} more of {text(sum(b.nbytes for b in live[NAMED:]))} together"
    needs, allowed = _apart(worst.arena, limit)
    what = f"{costs.device} has {allowed}" if whole else f"the budget is {allowed}"
    fragments = ""
    if worst.live_peak <= limit:
        fragments = f" (its live bytes would fit, but no placement tried is lower than {needs})"
    if smallest <= limit:
        advice = f"the policy's leanest plan takes {text(smallest)}: ask for a budget of {text(worst.arena)} or more"
    else:
        advice = f"the smallest budget {policy} can keep is {smallest} bytes ({text(smallest)})"
    return BudgetError(
        f"{policy} needs {needs}, {what}{fragments}; at {worst.program.name} "
        f"{worst.plan.order[point].name} (instruction {worst.points[point]}) live: {names}; {advice}",
        worst.arena,
        smallest,
    )


def _host_refusal(policy: str, schedules: Iterable[Schedule], host: int, host_budget: int) -> BudgetError:
    sizes: dict[Tensor, int] = {}
    for s in schedules:
        for t in s.host_offset:
            sizes[t] = max(sizes.get(t, 0), t.nbytes)
    largest = sorted(sizes, key=lambda t: -t.nbytes)[:NAMED]
    names = ", ".join(f"{t.name} {text(t.nbytes)}" for t in largest)
    keeps, allowed = _apart(host, host_budget)
    return BudgetError(
        f"{policy} keeps {keeps} on the host, the host budget is {allowed}; the largest that travel: "
        f"{names}; the smallest host budget {policy} can keep is {host} bytes ({text(host)})",
        host,
        host,
        host=True,
    )


def _apart(needed: int, allowed: int) -> tuple[str, str]:
    """Two sizes for people, in bytes where three figures would not tell them apart."""
    short = text(needed), text(allowed)
    return short if short[0] != short[1] else (f"{needed} bytes", f"{allowed} bytes")
