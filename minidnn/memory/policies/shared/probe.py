"""The bytes and seconds that a plan would take: buffers, live bytes, the arena's height, the time of a step.

Policies ask this many times for a plan. The lives of tensors alone decide where bytes lie, so nothing is lowered for
it. Only `seconds` needs instructions.
"""

from __future__ import annotations

import sys

import numpy as np

from minidnn.costs import Costs
from minidnn.memory.execution.pinning import with_staging
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.lowering.host import host_room
from minidnn.memory.lowering.lower import group, lower, residencies_of
from minidnn.memory.lowering.placement import place
from minidnn.memory.lowering.staging import RingTooSmall
from minidnn.memory.lowering.tiers import tiered
from minidnn.memory.plan import Plan, complete
from minidnn.memory.schedule import Arrangement, Listing, aligned
from minidnn.program import Program


def listing(program: Program, costs: Costs, plan: Plan) -> Listing:
    """The plan's buffers, in a listing without instructions. Raises ValueError if the plan contradicts itself."""
    plan, program = complete(program, costs, plan), program.with_host_resident(plan.host_resident)
    return Listing(program, plan, (), tuple(group(program, plan, residencies_of(program, plan))), ())


def curve(program: Program, costs: Costs, plan: Plan) -> np.ndarray:
    """Exact bytes live at each execution, int64 (executions,)."""
    return listing(program, costs, plan).curve()


def aligned_curve(listing: Listing) -> np.ndarray:
    """Aligned bytes live at each execution, as placement counts them, int64 (executions,)."""
    steps = np.zeros(len(listing.plan.order) + 1, np.int64)
    for b in listing.buffers:
        steps[b.lo] += aligned(b.nbytes)
        steps[b.hi] -= aligned(b.nbytes)
    return np.cumsum(steps)[:-1]


def arena(program: Program, costs: Costs, plan: Plan, enough: int = 0) -> int:
    """Bytes of the plan's arena. If it needs at most `enough`, placement looks for no lower one."""
    return place(listing(program, costs, plan), enough=enough, by=costs.placement).arena


def fits_host(program: Program, costs: Costs, plan: Plan) -> bool:
    """Whether the plan keeps the host's budget (Costs.host), and its tensors fit the ring, if there are both."""
    if costs.host is None or host_room(program.with_host_resident(plan.host_resident), costs) is None:
        return True
    try:
        return off_device(program, costs, plan) <= costs.host
    except RingTooSmall:
        return False


def off_device(program: Program, costs: Costs, plan: Plan) -> int:
    """Bytes of the host's memory that the plan takes. Raises RingTooSmall."""
    result = listing(program, costs, plan)
    if costs.staging is not None:
        result = with_staging(lower(result.program, result.plan), costs)
    schedules = tiered({program.name: place(result, enough=sys.maxsize)}, costs.host)
    return Arrangement.of("", schedules, None).off_device


def fits(program: Program, costs: Costs, plan: Plan, budget: int) -> bool:
    """Whether the plan's arena is within the budget."""
    return over(program, costs, plan, budget) <= 0


def over(program: Program, costs: Costs, plan: Plan, budget: int) -> int:
    """Bytes by which the plan exceeds the budget; 0 or less if its arena keeps the budget.

    If the live bytes alone exceed it, it is these that count: then nothing is placed, which would take longer.
    """
    result = listing(program, costs, plan)
    peak = int(aligned_curve(result).max(initial=0))
    return (peak if peak > budget else place(result, enough=budget, by=costs.placement).arena) - budget


def op_seconds(costs: Costs, plan: Plan) -> float:
    """Seconds of all executions: those of a step that copies nothing but inputs and outputs."""
    seconds = {op: costs.seconds(op, plan.algorithm[op]) for op in dict.fromkeys(plan.order)}
    return sum(seconds[op] for op in plan.order)


def seconds(program: Program, costs: Costs, plan: Plan) -> float:
    """Seconds of one step of the plan, on the simulator."""
    return simulate(place(lower(program, complete(program, costs, plan))), costs).seconds
