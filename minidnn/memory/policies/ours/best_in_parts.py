"""best, where ops run in parts of the batch (memory/parts/): which parts are tried, and when.

The program with large ops in 2, 4, 8 ... parts is a candidate each (memory/parts/regions.py), with a bound of its own.
Candidates whose bound is below the quickest plan so far are planned, the most promising first. So parts are taken by
cost, and only then. The seconds of the ops alone are a bound, too, and cost nothing: where they exclude a candidate,
its linear program is not solved. Bounds at the budget rank candidates badly, since in them tensors are there in part,
and just fit. So the bound within fewer bytes ranks them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from minidnn.costs import Costs
from minidnn.memory.joint.bound import LowerBound
from minidnn.memory.joint.host_residents import HostResidents
from minidnn.memory.joint.index import Index, shortest
from minidnn.memory.parts.regions import candidates, leaner, needed
from minidnn.memory.plan import Plan
from minidnn.program import Program

LOOKED = 6  # candidates that the bound does not exclude: those whose ops take least seconds
PLANNED = 2  # candidates that are planned; of short ones, more
LONG, SHORT = 300, 0.5  # ops of a candidate that counts as one; what a short one counts as
MISSING = 0.3  # of the bytes that a candidate leaves free: plans lack so many, about, for tensors are whole there
PAYS = 0.995  # of the step's seconds so far: a bound below this is worth a plan

Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan in parts that keeps the budget, with its seconds."""

    plan: Plan
    seconds: float


def quicker(program: Program, costs: Costs, budget: int, seconds: float, tell: Tell) -> Candidate | None:
    """The quickest plan found in parts, if it takes fewer seconds than these; None: there is none."""
    best: Candidate | None = None
    spent = 0.0
    for _, bound, one in _ranked(program, costs, budget, seconds, tell):
        if spent >= PLANNED:
            break
        if bound >= seconds * PAYS:
            continue
        spent += min(1.0, max(SHORT, len(one.ops) / LONG))
        result = HostResidents(one, costs, tell=partial(_reporting, tell, one), descend=False).within(budget, seconds)
        if result is not None:
            best, seconds = Candidate(replace(result.with_bound, program=one), result.seconds), result.seconds
    return best


def _ranked(
    program: Program, costs: Costs, budget: int, seconds: float, tell: Tell
) -> list[tuple[float, float, Program]]:
    """(the bound where a part of the free bytes is missing, the bound, the candidate), the most promising first."""
    result: list[tuple[float, float, Program]] = []
    able = [(shortest(one, costs), needs, one) for one in candidates(program) if (needs := needed(one)) <= budget]
    for least, needs, one in sorted(able, key=lambda each: each[0]):
        if least >= seconds * PAYS or len(result) == LOOKED:
            break
        tell(f"the bound in {one.parts[0].count} parts")
        lower = LowerBound(Index(one, costs))
        if (bound := lower.at(budget)) is not None and bound.seconds < seconds * PAYS:
            less = lower.at(budget - int((budget - needs) * MISSING))
            result.append((inf if less is None else less.seconds, bound.seconds, one))
    return sorted(result, key=lambda each: each[:2])


def _reporting(tell: Tell, program: Program, text: str) -> None:
    tell(f"in {program.parts[0].count} parts, {text}")


def leanest(program: Program, costs: Costs, parts: bool, tell: Tell) -> Plan:
    """The plan with the lowest arena found. It is one of the program, or, if ops may run in `parts`, of the
    candidate that needs fewest bytes."""
    *_, last = (program, *leaner(program)) if parts else (program,)
    planners = [HostResidents(made, costs, tell=tell) for made in dict.fromkeys((program, last))]
    planner = min(planners, key=lambda planner: planner.bound.least())
    return replace(planner.leanest(), program=planner.program if planner.program.parts else None)
