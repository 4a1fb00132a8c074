"""best: offloading, recomputation and algorithms decided together, by costs (memory/joint/).

It is minidnn's own policy, and the default wherever a budget is given. Under the device's memory alone it moves nothing
that it need not. Its plan knows a lower bound of the seconds of any plan within the budget (memory/joint/bound.py).

The plans of other policies are candidates, too, if joint planning finds no plan or one far above the bound. They also
are for short programs and for scarce host bytes, unless the joint plan is at the bound. They are the only ones without
the package highspy or a C compiler; a line on stderr then says so.

Large ops may run in parts of the batch (best_in_parts.py): where the budget cannot be kept without, or where it is
quicker. The bound is that of the program which the plan is of.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from minidnn import sizes
from minidnn.compiled import NotCompiled
from minidnn.costs import Costs
from minidnn.memory.joint.host_residents import HostResidents
from minidnn.memory.joint.linear import NoSolver, Unsolved
from minidnn.memory.joint.planner import Candidate
from minidnn.memory.lowering.host import fixed, may_lack_room
from minidnn.memory.plan import Plan, Policy
from minidnn.memory.policies.ours import best_in_parts, best_on_host
from minidnn.memory.policies.shared import kept, probe
from minidnn.program import Program
from minidnn.visible import say_once, status

# How far above the bound a plan is if other policies are asked, by ops of the program: their planning takes long.
FAR = {150: 1.001, 1000: 1.1, sys.maxsize: sys.float_info.max}
NEAR = 1.001  # of the seconds of all ops: such a plan is not tried in parts
FINE = 1_000_000  # Where no plan is found, tensors so many times smaller than the largest may leave, too.

Tell = Callable[[str], None]


def best(program: Program, costs: Costs, budget: int, others: Sequence[Policy], parts: bool = True) -> Plan:
    """The quickest plan found that keeps the budget, and the host's (Costs.host). If none does, the one within the
    budget that takes least of the host; if there is none, the one with the lowest arena.

    others: policies whose plans are candidates
    parts:  whether ops may run in parts
    """
    path = kept.place(program, costs, budget, parts)
    if path is not None and (plan := kept.load(path, program, costs)) is not None:
        return plan

    def tell(text: str) -> None:
        status(f"planning {program.name} within {sizes.text(budget)}: {text}")

    try:
        plan = _planned(program, costs, budget, others, parts, tell)
    except (NoSolver, NotCompiled, Unsolved) as reason:
        say_once(f"minidnn: best takes the best plan of the other policies, since its own planning {reason}")
        return _quickest(program, costs, budget, others, None, tell)
    finally:
        status()
    if path is not None:
        kept.keep(path, program, costs, plan)
    return plan


def staying(program: Program, costs: Costs, budget: int, others: Sequence[Policy], parts: bool = True) -> Plan | None:
    """The quickest plan found that keeps the budget, and sends nothing away: the host has room for inputs and outputs
    alone. None: none is found. The arguments are those of `best`."""
    costs = replace(costs, host=fixed(program), staging=None, doubt=0.0)
    path = kept.place(program, costs, budget, parts)
    if path is not None and (known := kept.load(path, program, costs)) is not None:
        return known if _keeps(program, costs, known, budget) else None

    def tell(text: str) -> None:
        status(f"planning {program.name} within {sizes.text(budget)}: without copies, {text}")

    try:
        plan, seconds = _quickest_within(program, costs, budget, others, parts, tell)
    except (NoSolver, NotCompiled, Unsolved):  # `best` has said so
        plan = _quickest(program, costs, budget, others, None, tell)
        return plan if _keeps(program, costs, plan, budget) else None
    finally:
        status()
    if plan is None or seconds == inf or not _keeps(program, costs, plan, budget):
        return None
    if path is not None:
        kept.keep(path, program, costs, plan)
    return plan


def _planned(program: Program, costs: Costs, budget: int, others: Sequence[Policy], parts: bool, tell: Tell) -> Plan:
    if not budget or not may_lack_room(program, costs):
        return _within(program, costs, budget, others, parts, tell)
    assert costs.host is not None
    if costs.staging is not None:  # what passes a ring may take less than is predicted (memory/lowering/host.py)
        plan = best(program, replace(costs, host=None), budget, others, parts)
        if _keeps(program, costs, plan, budget):
            return plan
    if costs.host < fixed(program):  # no plan keeps it
        light = best_on_host.lightest(program, costs, budget, others, parts, tell)
        return light or _leanest(program, costs, parts, others, tell)
    plan = _within(program, costs, budget, others, parts, tell)
    if not costs.host or _keeps(program, costs, plan, budget):
        return plan
    light = best(program, replace(costs, host=0), budget, others, parts)
    return light if probe.fits(light.program or program, costs, light, budget) else plan


def _within(program: Program, costs: Costs, budget: int, others: Sequence[Policy], parts: bool, tell: Tell) -> Plan:
    """The quickest plan found that keeps both budgets; if none does, the one with the lowest arena."""
    plan, seconds = _quickest_within(program, costs, budget, others, parts, tell)
    if plan is not None and seconds < inf:
        return plan
    leanest = _leanest(program, costs, parts, others, tell)
    return leanest if plan is None else _leaner(program, costs, plan, leanest)


def _quickest_within(
    program: Program, costs: Costs, budget: int, others: Sequence[Policy], parts: bool, tell: Tell
) -> tuple[Plan | None, float]:
    """The quickest plan found, as `_as_whole` gives it, or in parts."""
    plan, seconds = _as_whole(program, costs, budget, others, tell)
    if plan is not None and seconds <= NEAR * sum(costs.seconds(op, costs.fastest(op)) for op in program.ops):
        return plan, seconds
    result = best_in_parts.quicker(program, costs, budget, seconds, tell) if parts else None
    return (plan, seconds) if result is None else (result.plan, result.seconds)


def _as_whole(
    program: Program, costs: Costs, budget: int, others: Sequence[Policy], tell: Tell
) -> tuple[Plan | None, float]:
    """The quickest plan whose ops run as a whole, and its seconds; they are infinite if it exceeds the budget. None: no
    plan keeps it."""
    planner = HostResidents(program, costs, tell=tell)
    result = planner.within(budget)
    if result is None and planner.bound.least() > budget:
        return None, inf
    result = result or HostResidents(program, costs, FINE, tell).within(budget)
    far = next(far for ops, far in FAR.items() if may_lack_room(program, costs) or len(program.ops) <= ops)
    alone = result is not None and result.plan.host_resident and len(program.ops) <= min(FAR)  # others move no weights
    if result is not None and not alone and result.seconds <= far * result.bound.seconds:
        return result.with_bound, result.seconds
    plan = _quickest(program, costs, budget, others, result, tell)
    if result is None and not _keeps(program, costs, plan, budget):
        if not planner.most:
            return plan, inf
        away = _with_all_away(planner, budget, others, tell)
        if _keeps(program, costs, away, budget):
            return away, probe.seconds(program, costs, away)
        return _leaner(program, costs, plan, away), inf
    return plan, probe.seconds(program, costs, plan)


def _leanest(program: Program, costs: Costs, parts: bool, others: Sequence[Policy], tell: Tell) -> Plan:
    """The plan with the lowest arena found. All budgets that the bound excludes share it, and a budget of 0 is one."""
    path = kept.place(program, costs, 0, parts)
    plan = None if path is None else kept.load(path, program, costs)
    if plan is None:
        plan = best_in_parts.leanest(program, costs, parts, tell)
        planner = HostResidents(program, costs, tell=tell)
        if not plan.order:  # none was found
            plan = _with_all_away(planner, 0, others, tell)
        if may_lack_room(program, costs):
            plan = _leaner(program, costs, plan, _quickest(program, costs, 0, others, None, tell))
        if path is not None:
            kept.keep(path, program, costs, plan)
    return plan


def _keeps(program: Program, costs: Costs, plan: Plan, budget: int) -> bool:
    made = plan.program or program
    return probe.fits(made, costs, plan, budget) and probe.fits_host(made, costs, plan)


def _leaner(program: Program, costs: Costs, *plans: Plan) -> Plan:
    """The plan with the lowest arena, of those that keep the host's budget, if any does."""

    def excess(plan: Plan) -> tuple[bool, int]:
        made = plan.program or program
        return not probe.fits_host(made, costs, plan), probe.arena(made, costs, plan)

    return min(plans, key=excess)


def _with_all_away(planner: HostResidents, budget: int, others: Sequence[Policy], tell: Tell) -> Plan:
    """The best of the others' plans of the program whose persistent tensors live on the host, all that it has room
    for."""
    program = planner.program.with_host_resident(planner.most)
    return replace(_quickest(program, planner.costs, budget, others, None, tell), host_resident=planner.most)


def _quickest(
    program: Program, costs: Costs, budget: int, others: Sequence[Policy], own: Candidate | None, tell: Tell
) -> Plan:
    """The quickest of the others' plans, and of `found`, that keeps the budgets; else the one with the lowest arena."""
    plans = []
    for number, decide in enumerate(others):
        tell(f"asking policy {number + 1} of {len(others)}")
        plans.append(decide(program, costs, budget))
    bound = None if own is None else own.bound.seconds
    keep = [replace(plan, bound=bound) for plan in plans if _keeps(program, costs, plan, budget)]
    keep += [] if own is None else [own.with_bound]
    if keep:
        return min(keep, key=lambda plan: probe.seconds(program, costs, plan))
    return _leaner(program, costs, *plans)
