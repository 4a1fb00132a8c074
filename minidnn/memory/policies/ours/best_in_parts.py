"""best, where ops run in parts of the batch (memory/parts/): which parts are tried, and when.

The program with large ops in 2, 4, 8 ... parts is a candidate each (memory/parts/regions.py), with a bound of its own.
Candidates whose bound is below the quickest plan so far are planned, the lowest bounds first. So parts are taken by
cost, and only then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from minidnn.costs import Costs
from minidnn.memory.joint.bound import LowerBound
from minidnn.memory.joint.host_residents import HostResidents
from minidnn.memory.joint.index import Index
from minidnn.memory.parts.regions import candidates
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
    bounds = []
    for made in candidates(program):
        tell(f"the bound in {made.parts[0].count} parts")
        bound = LowerBound(Index(made, costs)).at(budget)
        if bound is not None and bound.seconds < seconds * PAYS:
            bounds.append((bound.seconds, made))
    best: Candidate | None = None
    for bound_seconds, made in sorted(bounds, key=lambda one: one[0])[:PLANNED]:
        if best is not None and bound_seconds >= best.seconds * PAYS:
            break
        result = HostResidents(made, costs, tell=partial(_reporting, tell, made)).within(budget)
        if result is not None and result.seconds < (seconds if best is None else best.seconds):
            best = Candidate(replace(result.with_bound, program=made), result.seconds)
    return best


def _reporting(tell: Tell, program: Program, text: str) -> None:
    tell(f"in {program.parts[0].count} parts, {text}")


def leanest(program: Program, costs: Costs, parts: bool, tell: Tell) -> Plan:
    """The plan with the lowest arena found. It is one of the program, or, if ops may run in `parts`, of the last
    candidate, which needs fewer bytes than those before it."""
    *_, last = (program, *candidates(program)) if parts else (program,)
    planners = [HostResidents(made, costs, tell=tell) for made in dict.fromkeys((program, last))]
    planner = min(planners, key=lambda planner: planner.bound.least())
    return replace(planner.leanest(), program=planner.program if planner.program.parts else None)
