"""MONeT (Shah, Wu, Mohan, Chidambaram, Krähenbühl: "Memory Optimization for Deep Networks", ICLR 2021).
MONeT-style: two of the paper's three choices are narrower here.

One integer program decides both the recomputations and each op's algorithm, since the workspace of a quick algorithm
may leave no room to keep a value. It is Checkmate's program with a variable for each algorithm
(checkmate_rows.py). Nothing leaves the device. We had the abstract and the authors' code
(github.com/utsaslab/MONeT), whose stages and sums of live bytes that program has.

Deviations, besides Checkmate's (checkmate.py):

  * An op has one algorithm in a step, while in the paper it may take another one when it runs again. Other bits would
    break the promise that policies change no number.
  * The paper also chooses whether the backward of an op reads the op's result, its input, or a mask. Here that is a
    fact of the program (--facts), the same for all policies.
  * The authors give their solver a day. Here the program is relaxed and rounded. Each rounded order gets the fastest
    algorithms whose workspaces fit beside its live bytes, which is the best choice for that order. Where parts of
    algorithms are chosen, rounding loses much. So orders of the program with the fastest algorithms alone count, too.
"""

from __future__ import annotations

from dataclasses import replace

from minidnn.costs import Costs
from minidnn.memory.joint.index import fronts
from minidnn.memory.plan import Plan
from minidnn.memory.policies.papers.checkmate import rematerialized
from minidnn.memory.policies.shared import probe
from minidnn.memory.policies.shared.algorithms import choose, fastest_within, live_without_workspaces
from minidnn.memory.policies.shared.orders import in_place
from minidnn.memory.schedule import aligned
from minidnn.program import Program

TRIES = 3  # rooms for workspaces that are tried; after these the plan has the leanest algorithms
SLACK = 64  # a room is smaller than the last by 1/64 of the budget at least


def monet(program: Program, costs: Costs, budget: int) -> Plan:
    """Recomputation and algorithms by an integer program.

    Raises BadInput without the package highspy.
    """
    least = choose(program, costs, "m")

    def finish(plan: Plan) -> Plan:
        """The plan with the fastest algorithms whose workspaces fit."""
        live, room = live_without_workspaces(program, costs, plan), budget
        for _ in range(TRIES):
            faster = replace(plan, algorithm=fastest_within(costs, least, live, room, aligned))
            over = probe.over(program, costs, faster, budget)
            if over <= 0:
                return faster
            room -= max(over, budget // SLACK)
        return plan

    own = Plan(program.ops, algorithm=least, share=in_place(program, program.ops))
    every = {op: fronts(costs.choices(op)) for op in program.ops}
    fastest = {op: several[-1:] for op, several in every.items()}
    plans = [rematerialized(program, costs, budget, own, choices, finish) for choices in (every, fastest)]
    fitting = [plan for plan in plans if probe.fits(program, costs, plan, budget)]
    if not fitting:
        return min(plans, key=lambda plan: probe.arena(program, costs, plan))
    return min(fitting, key=lambda plan: probe.op_seconds(costs, plan))
