"""best, where the costs of copies are in doubt (Costs.doubt): a plan that copies has to be quicker by more than that.

On a host, copies take the cores from the ops beside them, and their costs are known less well than those of ops. So a
plan counts with the seconds that its copies may take longer than predicted. Beside the quickest plan there is the
quickest that sends nothing away; of two that count alike, the one that moves less is taken. Where nothing is in doubt,
as on a simulated GPU, seconds are all that counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

from minidnn.costs import Costs
from minidnn.memory.execution.pinning import with_staging
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.lowering.asap import asap
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.lowering.staging import RingTooSmall
from minidnn.memory.plan import Plan, complete
from minidnn.program import Program


def surer(program: Program, costs: Costs, plan: Plan, staying: Callable[[], Plan | None]) -> Plan:
    """The plan, or the one that `staying` makes, if that is as quick within the doubt.

    staying: makes a plan within the same budget that sends nothing away, or None"""
    if not costs.doubt or not sends(program, plan) or (still := staying()) is None:
        return plan
    if seconds(still.program or program, costs, still) > seconds(plan.program or program, costs, plan):
        return plan
    bounds = [one.bound for one in (plan, still) if one.bound is not None]
    return replace(still, bound=min(bounds, default=None))


def sends(program: Program, plan: Plan) -> bool:
    """Whether the plan sends away what need not leave: more than inputs, outputs and what lives on the host anyway."""
    made = plan.program or program
    own = {*made.inputs, *made.outputs, *made.host_resident}
    return bool(plan.host_resident) or any(offload.tensor not in own for offload in plan.offloads)


def seconds(made: Program, costs: Costs, plan: Plan) -> float:
    """Seconds of a step of the plan for this program, with copies back as planning.py lets them begin, and with what
    its copies may take longer; infinite if the ring is too small for it."""
    listing = lower(made, complete(made, costs, plan))
    if costs.staging is not None:
        try:
            traces = [simulate(place(with_staging(listing, costs)), costs)]
        except RingTooSmall:
            return inf
    else:
        schedule = place(listing)
        traces = [simulate(schedule, costs), simulate(asap(schedule), costs)]
    return min(trace.seconds + costs.doubt * trace.copying for trace in traces)
