"""Joint planning's decisions at random, and the schedules of their plans."""

from __future__ import annotations

import random

from minidnn.costs import Costs
from minidnn.memory.joint.evaluator import KEEP, OFFLOAD, RECOMPUTE, Evaluator, TooLong
from minidnn.memory.joint.index import Index
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import Plan, complete
from minidnn.memory.schedule import Schedule
from minidnn.program import Program

HUGE = 1 << 50  # bytes: a limit that every plan keeps


def at_random(ev: Evaluator, r: random.Random) -> None:
    """Decisions at random, some of each kind or nearly none."""
    copies, runs = r.choice([0, 0.1, 0.5]), r.choice([0, 0.1, 0.5])
    for i in range(len(ev.gaps)):
        draw = r.random()
        if ev.may_offload[i] or ev.may_recompute[i]:
            ev.fate[i] = OFFLOAD if draw < copies and ev.may_offload[i] else KEEP
            if draw > 1 - runs and ev.may_recompute[i]:
                ev.fate[i] = RECOMPUTE
            ev.pin_from[i] = r.choice([0, 0, 1, 255])
    for p, choices in enumerate(ev.index.choices):
        ev.choose(p, r.randrange(len(choices)))


def placed(program: Program, costs: Costs, plan: Plan) -> Schedule:
    """The schedule of a plan, which need not be complete."""
    return place(lower(program, complete(program, costs, plan)))


def schedule_at_random(program: Program, costs: Costs, r: random.Random) -> Schedule:
    """The schedule of decisions at random, within the least bytes that they can take or within more."""
    ev = Evaluator(Index(program, costs))
    while True:
        at_random(ev, r)
        try:
            ev.evaluate(HUGE)
        except TooLong:
            continue
        widest = ev.base + int(ev.view("live", "executions").max())
        if ev.evaluate(r.randrange(widest * 3 // 10, widest + 1)).over <= 0:
            return placed(program, costs, ev.plan())
