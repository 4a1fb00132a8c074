"""best, where it is to look longer (`--effort`): its usual plan is the first, and a search goes on from there.

Plans of other policies are starts besides, those that are made quickly. The program stays the plan's: its parts, and
what lives on the host. A plan that is not quicker is never taken. What the whole time has found is kept, under its
seconds, for the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from minidnn import sizes
from minidnn.compiled import NotCompiled
from minidnn.costs import Costs
from minidnn.memory.effort import Effort
from minidnn.memory.joint.linear import NoSolver, Unsolved
from minidnn.memory.joint.planner import Planner
from minidnn.memory.joint.rounds import Rounds
from minidnn.memory.plan import Plan, Policy, complete
from minidnn.memory.policies.ours.surer import seconds
from minidnn.memory.policies.shared import kept, probe
from minidnn.program import Pass, Program
from minidnn.visible import say_once, status


def longer(
    program: Program, costs: Costs, budget: int, plan: Plan, parts: bool, others: Sequence[Policy], effort: Effort
) -> Plan:
    """The quickest plan found for as long as the effort says, which keeps the budgets; else `plan`, the usual one.

    others: policies whose plans are starts

    A program that does not train, and a plan that keeps no budget, are left as they are. Ctrl-C ends the search: the
    quickest plan so far is taken, and a line on stderr says so.
    """
    made = plan.program or program
    trains = any(op.during is Pass.BACKWARD for op in program.ops)
    if not trains or not budget or plan.host_ops or not _keeps(made, costs, plan, budget):
        return plan
    path = kept.place(program, costs, budget, parts, effort.seconds)
    if path is not None and (known := kept.load(path, program, costs)) is not None:
        return known
    result = _searched(made, costs, budget, plan, others, effort)
    if path is not None and not effort.over:
        kept.keep(path, program, costs, result)
    return result


def _searched(made: Program, costs: Costs, budget: int, plan: Plan, others: Sequence[Policy], effort: Effort) -> Plan:
    there = made.with_host_resident(plan.host_resident)

    def tell(text: str) -> None:
        status(f"planning {made.name} within {sizes.text(budget)}: {text}")

    rounds = None
    try:
        planner = Planner(there, costs, tell=tell)
        rounds = Rounds(planner, budget, probe.seconds(made, costs, plan), plan.bound, effort)
        makes: list[Callable[[], Plan]] = [partial(complete, made, costs, plan)]
        rounds.run(makes + [partial(decide, there, costs, budget) for decide in others])
    except KeyboardInterrupt:
        effort.over = True
    except (NoSolver, NotCompiled, Unsolved) as reason:
        say_once(f"minidnn: best does not search longer, since its own planning {reason}")
    finally:
        status()
    result = plan if rounds is None else _quicker(made, costs, budget, plan, rounds.best)
    if effort.over:
        over = "" if plan.bound is None else f", {seconds(made, costs, result) / plan.bound - 1:.1%} over the bound"
        say_once(f"minidnn: interrupted: the quickest plan of {made.name} so far is taken{over}")
    return result


def _quicker(made: Program, costs: Costs, budget: int, plan: Plan, found: Plan | None) -> Plan:
    """The plan that is found, if it keeps the budgets, and is quicker as it will be run."""
    if found is None:
        return plan
    found = replace(found, host_resident=plan.host_resident, program=plan.program, bound=plan.bound)
    quicker = _keeps(made, costs, found, budget) and seconds(made, costs, found) < seconds(made, costs, plan)
    return found if quicker else plan


def _keeps(made: Program, costs: Costs, plan: Plan, budget: int) -> bool:
    return probe.fits(made, costs, plan, budget) and probe.fits_host(made, costs, plan)
