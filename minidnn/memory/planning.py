"""From programs, a policy and a budget to proved schedules, or to a refusal that names a budget that would do.

Nothing is allocated here: a budget that cannot be kept is refused before anything runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from minidnn.costs import Costs
from minidnn.memory.budget import BudgetError, DiskError, RingError, host_refusal, refusal
from minidnn.memory.effort import looking
from minidnn.memory.execution.pinning import with_staging
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.lowering.asap import asap
from minidnn.memory.lowering.host import fixed, fixed_together, may_lack_room
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.peers import with_peers
from minidnn.memory.lowering.placement import PersistentLayout, persistent_layout, pinned, place
from minidnn.memory.lowering.staging import RingTooSmall
from minidnn.memory.lowering.tiers import tiered
from minidnn.memory.plan import Plan, Policy, complete
from minidnn.memory.policies import AT, BUDGETED, find, is_users
from minidnn.memory.policies.shared.kept import replanned
from minidnn.memory.policies.users import blamed
from minidnn.memory.proof.parts import verify_parts
from minidnn.memory.proof.verify import verify_all
from minidnn.memory.schedule import BLOCK, Arrangement, Schedule
from minidnn.program import Program, Tensor
from minidnn.sizes import text

ROUNDING = 1e-9  # a part of a step's seconds
ENDLESS = 1 << 62  # bytes: a budget that every plan keeps
FINE = 64  # the search for a budget ends once those that are and are not kept differ by 1/64


@contextmanager
def _without_collector() -> Iterator[None]:
    """Switch Python's garbage collector off for a while.

    Planning makes very many values and no garbage in cycles. The collector would walk all of them each time their
    number has grown by a quarter. On nets of 10,000 ops that is half of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_without_collector()
@replanned
def arrange(
    programs: Sequence[Program],
    policy: str,
    costs: Costs,
    budget: int | None = None,
    host_budget: int | None = None,
    proof: bool = True,
) -> Arrangement:
    """Plan, lower, place and prove every program. The programs share one arena and one fixed offset for each persistent
    tensor.

    Double-buffered inputs take two places on the device. If a budget has no room for them, inputs come by offloads
    within the step.

    budget:      device bytes; None: all that the device has
    host_budget: bytes on the host, pinned and pageable; None: no limit
    proof:       False is for studies that lower thousands of plans

    Raises BudgetError if a budget is exceeded, NoSuchPolicy for an unknown policy, PlanError for a plan file that
    contradicts itself or belongs to another net or device, and PolicyError for a policy of the user's own that fails.
    """
    if any(program.double_buffered for program in programs):
        with suppress(BudgetError):
            return _arrange(programs, policy, costs, budget, host_budget, proof)
    return _arrange(synchronous(programs), policy, costs, budget, host_budget, proof)


def synchronous(programs: Sequence[Program]) -> list[Program]:
    """These programs with their inputs copied within the step, as where two places of each do not fit."""
    return [program.synchronous_inputs() for program in programs]


def _arrange(
    programs: Sequence[Program],
    policy: str,
    costs: Costs,
    budget: int | None,
    host_budget: int | None,
    proof: bool,
) -> Arrangement:
    limit = costs.memory if budget is None else budget
    costs = costs if host_budget is None else replace(costs, host=host_budget)
    result = _arrangement(programs, policy, costs, limit, budget is not None)
    if not _keeps(result, costs, limit):
        raise _refusal(programs, result, costs, limit, budget)
    result = replace(result, budget=budget)
    if costs.staging is not None and costs.staging.disk is not None:
        _check_disk(result, costs.staging.disk.most)
    if proof:
        with blamed(policy, is_users(policy)):
            verify_all(result.schedules.values(), limit)
            verify_parts(programs, result.schedules.values())
    return result


def _arrangement(
    programs: Sequence[Program], policy: str, costs: Costs, limit: int, budgeted: bool = True
) -> Arrangement:
    """The policy's plan for these budgets, which it may exceed.

    With a disk, BUDGETED decides once more, as if there were none: where the host has room for all that leaves, copies
    need not be as rare as a disk wants them, nor pass through a ring that nobody has asked for."""

    def by(costs: Costs, seen: Costs) -> Arrangement:
        return Arrangement.of(
            policy, tiered(unproved(programs, policy, costs, limit, budgeted, seen), costs.host), limit
        )

    result, staging = by(costs, costs.sustained), costs.staging
    if staging is None or staging.disk is None or costs.host is None or policy.partition(AT)[0] != BUDGETED:
        return result
    kept = [result] if _keeps(result, costs, limit) else []
    if not staging.ring and not staging.compress and not staging.on_demand:  # the ring is there for the disk alone
        without = replace(costs, staging=None)
        direct = _unbounded(by(without, without))
        if _keeps(direct, costs, limit):
            return min([*kept, direct], key=lambda each: _seconds(each, costs))
    other = by(costs, replace(costs, staging=replace(staging, disk=None)))
    if _keeps(other, costs, limit):
        kept.append(other)
    return min(kept, key=lambda each: _seconds(each, costs), default=result)


def _unbounded(arrangement: Arrangement) -> Arrangement:
    """The arrangement without its plans' bounds, which hold for plans without a disk."""
    return replace(
        arrangement,
        schedules={
            name: replace(schedule, plan=replace(schedule.plan, bound=None))
            for name, schedule in arrangement.schedules.items()
        },
    )


def _seconds(arrangement: Arrangement, costs: Costs) -> float:
    """Of a step of each program."""
    return sum(simulate(schedule, costs).seconds for schedule in arrangement.schedules.values())


def _keeps(arrangement: Arrangement, costs: Costs, limit: int) -> bool:
    return arrangement.arena <= limit and (costs.host is None or arrangement.off_device <= costs.host)


def _refusal(
    programs: Sequence[Program], arrangement: Arrangement, costs: Costs, limit: int, budget: int | None
) -> BudgetError:
    """The refusal of plans that exceed a budget, with budgets that the policy keeps."""
    with looking(None):
        device, host = _smallest(programs, arrangement.policy, costs)
    if arrangement.arena > limit:
        return refusal(arrangement.policy, arrangement.schedules, limit, budget is None, costs, (device, host))
    assert costs.host is not None
    light = _arrangement(programs, arrangement.policy, replace(costs, host=0), limit, budget is not None)
    light = light if light.arena <= limit and light.off_device < arrangement.off_device else arrangement
    return host_refusal(
        arrangement.policy,
        arrangement.schedules.values(),
        arrangement.off_device,
        costs.host,
        (budget, light.off_device),
        device if host == costs.host else None,
    )


def _smallest(programs: Sequence[Program], policy: str, costs: Costs) -> tuple[int, int | None]:
    """The smallest device budget found that the policy keeps with this host budget, and that host budget. If there is
    none, the smallest device budget, and a larger one of the host. None: it keeps any of the host.

    The leanest plan mostly takes most of the host. So larger budgets are tried where it takes too much."""

    def keeps(limit: int) -> bool:
        return _keeps(_arrangement(programs, policy, costs, limit), costs, limit)

    lean = _arrangement(programs, policy, costs, 0)
    if not any(may_lack_room(program, costs) for program in programs):
        return lean.arena, None
    assert costs.host is not None
    if costs.host < fixed_together(programs):
        return lean.arena, lean.off_device
    if keeps(lean.arena):
        return lean.arena, costs.host
    low, high = lean.arena, _arrangement(programs, policy, costs, ENDLESS).arena
    if not keeps(high):
        return lean.arena, lean.off_device
    while high - low > high // FINE:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high, costs.host


@_without_collector()
@replanned
def unproved(
    programs: Sequence[Program], policy: str, costs: Costs, limit: int, budgeted: bool = True, seen: Costs | None = None
) -> dict[str, Schedule]:
    """{program's name: schedule}, as the policy decides under a budget of `limit` bytes, and that of the host
    (Costs.host), without a proof.

    budgeted: whether a user has named the budget (`find`)
    seen:     the costs that the policy decides by (default: `costs.sustained`)

    The arena may exceed the limit. This is for studies that search for a budget that can be kept; all others use
    `arrange`.
    """
    schedules: dict[str, Schedule] = {}
    seen = costs.sustained if seen is None else seen
    with blamed(policy, is_users(policy)):
        decided = _decided(programs, find(policy, budgeted), seen, limit)
        at = persistent_layout(*(program for program, _ in decided))
        for program, plan in decided:
            if seen is not costs:
                plan = replace(plan, bound=None)  # what stays in the ring or in memory spares the disk
            listing = with_peers(lower(program, complete(program, costs, plan)), costs.peers)
            if costs.staging is not None:
                try:
                    listing = with_staging(listing, costs)
                except RingTooSmall as error:
                    raise RingError(
                        f"{policy}: {error}; the smallest ring that it can use is {text(error.needed)}",
                        costs.staging.ring,
                        error.needed,
                        host=True,
                    ) from None
            placed = place(listing, at, by=costs.placement)
            # A search for an arena within the limit may find one where the search for the lowest arena does not.
            placed = placed if placed.arena <= limit else place(listing, at, limit, by=costs.placement)
            schedules[program.name] = _asap(placed, costs) if plan.asap and costs.staging is None else placed
    return schedules


def _decided(programs: Sequence[Program], decide: Policy, costs: Costs, limit: int) -> list[tuple[Program, Plan]]:
    """Each program with its plan. A tensor that lives on the host in one plan does so in all: a program whose plan has
    it on the device is planned again."""
    result: dict[str, tuple[Program, Plan]] = {}
    pending, host_resident = list(programs), set[Tensor]()
    while pending:
        for program in (p.with_host_resident(host_resident) for p in pending):
            base = persistent_layout(*(p.with_host_resident(host_resident) for p in programs))
            # bytes that only others carry: the policy cannot use them
            others = base.nbytes - persistent_layout(program).nbytes
            left = _costs_less_others(costs, program, base, [result.get(p.name, (p, None)) for p in programs])
            plan = decide(program, left, max(0, limit - others))
            if program.name in result and plan.bound is not None:  # the first one was for all layouts
                plan = replace(plan, bound=min(plan.bound, result[program.name][1].bound or plan.bound))
            result[program.name] = (plan.program or program).with_host_resident(plan.host_resident), plan
            host_resident |= plan.host_resident
        pending = [p for p in programs if not host_resident.isdisjoint(result[p.name][0].persistent)]
    return list(result.values())


def _costs_less_others(
    costs: Costs, program: Program, at: PersistentLayout, every: Sequence[tuple[Program, Plan | None]]
) -> Costs:
    """The costs, with the host bytes that the other programs leave to this one. A program with a plan takes the plan's
    bytes, another one the least it can. The programs use the bytes of a ring in turns.

    at:    the persistent layout that all share
    every: all programs, with their plans
    """
    if costs.host is None:
        return costs
    taken = at.host_bytes - persistent_layout(program).host_bytes
    for other, plan in every:
        if other.name != program.name:
            known = None if plan is None or costs.staging is not None else complete(other, costs, plan)
            taken += (fixed(other) if known is None else pinned(other, known)) - persistent_layout(other).host_bytes
    return replace(costs, host=max(0, costs.host - taken))


def _check_disk(arrangement: Arrangement, most: int | None) -> None:
    """Raise DiskError if the plan takes more than `most` bytes of the disk."""
    if most is not None and arrangement.on_disk > most:
        raise DiskError(
            f"{arrangement.policy} puts {text(arrangement.on_disk)} on the disk, where {text(most)} may be used: give "
            f"{arrangement.on_disk} bytes there, or a host budget of {_host_for(arrangement, most)} bytes, to keep "
            f"more in memory",
            arrangement.on_disk,
            arrangement.on_disk,
            host=True,
        )


def _host_for(arrangement: Arrangement, most: int) -> int:
    """A host budget, nearly the smallest, with which the plan takes at most `most` bytes of the disk."""
    low, high = arrangement.off_device, arrangement.off_device + arrangement.disk
    while high - low > BLOCK:
        middle = (low + high) // 2
        if Arrangement.of(arrangement.policy, tiered(arrangement.schedules, middle), None).on_disk > most:
            low = middle
        else:
            high = middle
    return high


def _asap(schedule: Schedule, costs: Costs) -> Schedule:
    """The schedule with copies back that begin as soon as they can, unless the step then takes longer (Costs.drag)."""
    result = asap(schedule)
    longer = simulate(result, costs).seconds > simulate(schedule, costs).seconds * (1 + ROUNDING)
    return schedule if longer else result
