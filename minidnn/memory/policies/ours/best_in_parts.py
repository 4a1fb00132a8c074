"""best, where ops run in parts of the batch (memory/parts/): which parts are tried, and when.

The program with large ops in 2, 4, 8 ... parts is a candidate each (memory/parts/regions.py), with a bound of its own.
Candidates whose bound is below the quickest plan so far are planned, the lowest bounds first. So parts are taken by
cost, and only then. The seconds of the ops alone are a bound, too, and cost nothing: where they exclude a candidate,
its linear program is not solved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from heapq import heapify, heappop, heappush

from minidnn.costs import Costs
from minidnn.memory.joint.bound import LowerBound
from minidnn.memory.joint.host_residents import HostResidents
from minidnn.memory.joint.index import Index, shortest
from minidnn.memory.parts.regions import candidates, leaner, needed
from minidnn.memory.plan import Plan
from minidnn.program import Program

PLANNED = 2  # candidates that are planned
PAYS = 0.995  # of the step's seconds so far: a bound below this is worth a plan

Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan in parts that keeps the budget, with its seconds."""

    plan: Plan
    seconds: float


def quicker(program: Program, costs: Costs, budget: int, seconds: float, tell: Tell) -> Candidate | None:
    """The quickest plan found in parts, if it takes fewer seconds than these; None: there is none."""
    made = [made for made in candidates(program) if needed(made) <= budget]
    # (seconds that no plan of the program is below, its place in `made`, whether they are the bound's)
    queue = [(shortest(one, costs), number, False) for number, one in enumerate(made)]
    heapify(queue)
    best: Candidate | None = None
    left = PLANNED
    while queue and left and queue[0][0] < seconds * PAYS:
        _, number, bounded = heappop(queue)
        one = made[number]
        if not bounded:
            tell(f"the bound in {one.parts[0].count} parts")
            if (bound := LowerBound(Index(one, costs)).at(budget)) is not None:
                heappush(queue, (bound.seconds, number, True))
            continue
        left -= 1
        result = HostResidents(one, costs, tell=partial(_reporting, tell, one)).within(budget)
        if result is not None and result.seconds < seconds:
            best, seconds = Candidate(replace(result.with_bound, program=one), result.seconds), result.seconds
    return best


def _reporting(tell: Tell, program: Program, text: str) -> None:
    tell(f"in {program.parts[0].count} parts, {text}")


def leanest(program: Program, costs: Costs, parts: bool, tell: Tell) -> Plan:
    """The plan with the lowest arena found. It is one of the program, or, if ops may run in `parts`, of the
    candidate that needs fewest bytes."""
    *_, last = (program, *leaner(program)) if parts else (program,)
    planners = [HostResidents(made, costs, tell=tell) for made in dict.fromkeys((program, last))]
    planner = min(planners, key=lambda planner: planner.bound.least())
    return replace(planner.leanest(), program=planner.program if planner.program.parts else None)
