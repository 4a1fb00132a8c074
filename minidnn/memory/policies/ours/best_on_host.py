"""best, where the host's budget is too small for any plan within the device's: the plan that takes least of the host.

Refusals name its bytes. So it must not depend on the host's budget: then it is found again where these bytes are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from minidnn.costs import Costs
from minidnn.memory.joint.host_residents import HostResidents
from minidnn.memory.lowering.host import fixed
from minidnn.memory.parts.regions import leaner
from minidnn.memory.plan import Plan, Policy
from minidnn.memory.policies.shared import probe
from minidnn.program import Program

FINE = 32  # the search ends once budgets that are and are not kept differ by 1/32

Tell = Callable[[str], None]


def lightest(
    program: Program, costs: Costs, budget: int, others: Sequence[Policy], parts: bool, tell: Tell
) -> Plan | None:
    """The plan with the fewest bytes on the host that is found within the device's budget, whatever its seconds and the
    host's budget; None: none is found."""
    costs = replace(costs, host=None)
    programs = [program, *list(leaner(program))[-1:]] if parts else [program]

    def taken(plan: Plan) -> int:
        return probe.off_device(plan.program or program, replace(costs, host=0), plan)

    def plans(host: int | None) -> Iterable[Plan]:
        for made in programs:
            planner = HostResidents(made, replace(costs, host=host), tell=tell, search=False)
            if (result := planner.within(budget)) is not None:
                yield replace(result.with_bound, program=made if made.parts else None)

    asked = [decide(program, costs, budget) for decide in others]
    known = [*plans(None), *(plan for plan in asked if probe.fits(program, costs, plan, budget))]
    if not known:
        return None
    best = min(known, key=taken)
    low = fixed(program)
    while (high := taken(best)) - low > high // FINE:
        middle = (low + high) // 2
        light = min(plans(middle), key=taken, default=best)
        if taken(light) < high:
            best = light
        else:
            low = middle
    return best
