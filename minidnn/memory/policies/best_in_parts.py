"""best, where ops run in parts of the batch (memory/parts/): which parts are tried, and when.

Large ops in 2, 4, 8 ... parts are candidates. A part's largest tensor keeps LEAST bytes, since the starts of smaller
ops and copies count. Each candidate is a program with a bound of its own. Those whose bound is below the quickest plan
so far are planned, the lowest bounds first. So parts are taken by cost, and only then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from minidnn.costs import Costs
from minidnn.memory.joint.bound import LowerBound
from minidnn.memory.joint.facts import Facts
from minidnn.memory.joint.planner import Planner
from minidnn.memory.parts import parted
from minidnn.memory.parts.regions import largest, regions
from minidnn.memory.plan import Plan
from minidnn.program import Program, Region

LEAST = 1 << 20  # bytes of the largest tensor of a part
MOST = 6000  # ops of a program in parts
PLANNED = 2  # candidates that are planned
PAYS = 0.995  # of the step's seconds so far: a bound below this is worth a plan

Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Found:
    """A plan in parts that keeps the budget, with its seconds."""

    plan: Plan
    seconds: float


def candidates(program: Program) -> Iterator[Program]:
    """The program with large ops in parts, the fewest parts first."""
    size, count = largest(program), 2
    before: tuple[Region, ...] = ()
    while size >= count * LEAST:
        found = regions(program, size // count, count)
        if found and found != before:
            made = parted(program, found)
            if len(made.ops) > MOST:
                return
            yield made
        count, before = 2 * count, found


def able(program: Program) -> bool:
    """Whether there are candidates."""
    return any(True for _ in candidates(program))


def quicker(program: Program, costs: Costs, budget: int, seconds: float, tell: Tell) -> Found | None:
    """The quickest plan found in parts, if it takes fewer seconds than these; None: there is none."""
    bounds = []
    for number, made in enumerate(candidates(program)):
        tell(f"the bound in {made.parts[0].count} parts")
        bound = LowerBound(Facts(made, costs)).at(budget)
        if bound is not None and bound.seconds < seconds * PAYS:
            bounds.append((bound.seconds, number, made))
    best: Found | None = None
    for bound_seconds, _, made in sorted(bounds, key=lambda one: one[:2])[:PLANNED]:
        if best is not None and bound_seconds >= best.seconds * PAYS:
            break
        found = Planner(made, costs, tell=partial(_told, tell, made)).within(budget)
        if found is not None and found.seconds < (seconds if best is None else best.seconds):
            best = Found(replace(found.told, program=made), found.seconds)
    return best


def _told(tell: Tell, made: Program, text: str) -> None:
    tell(f"in {made.parts[0].count} parts, {text}")


def leanest(program: Program, costs: Costs, parts: bool, tell: Tell) -> Plan:
    """The plan with the lowest arena found: of the program, or, where ops may run in `parts`, of the candidate whose
    bound needs the fewest bytes."""
    tried = (program, *candidates(program)) if parts else (program,)
    planners = [Planner(made, costs, tell=tell) for made in tried]
    planner = min(planners, key=lambda planner: planner.bound.least())
    return replace(planner.leanest(), program=planner.program if planner.program.parts else None)
