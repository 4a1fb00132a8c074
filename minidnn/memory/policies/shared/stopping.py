"""Recomputation that stops at a budget: no more runs than its bytes need.

A policy's full plan is the paper's, which ignores the budget. It is the policy's leanest plan, so it decides which
budgets are kept. Under such a budget, orders with fewer runs are tried, each made for a room (search.py). An order
counts only if it keeps the budget once it is placed, and is quicker than the full plan: more room need not mean fewer
seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from minidnn.costs import Costs
from minidnn.memory.plan import Plan
from minidnn.memory.policies.shared import probe
from minidnn.memory.policies.shared.search import Rooms
from minidnn.program import Op, Program

ATTEMPTS = 4  # orders placed at most
FINE = 32  # the search ends once the rooms that do and do not fit differ by 1/32 of the budget

Ordering = Callable[[int], tuple[Op, ...]]  # room in live bytes -> the order of a step


def stopped(program: Program, costs: Costs, budget: int, full: Plan, start: Plan, order: Ordering) -> Plan:
    """The quickest plan found that keeps the budget: `start` in one of the orders, or `full`.

    full:  the policy's leanest plan, which keeps the budget
    order: as few runs as keep the live bytes of `start` within a room, as far as can be told before placement
    """
    if probe.fits(program, costs, start, budget) and probe.op_seconds(costs, start) <= probe.op_seconds(costs, full):
        return start
    best, quickest = full, probe.op_seconds(costs, full)
    tried: tuple[Op, ...] = ()
    rooms = Rooms(budget, ATTEMPTS, budget // FINE)
    for room in rooms:
        result = replace(start, order=order(room))
        if result.order != tried:  # else it is known whether the order fits
            tried, seconds = result.order, probe.op_seconds(costs, result)
            if seconds >= quickest:
                break  # less room means more runs
            rooms.over = probe.over(program, costs, result, budget)
        if rooms.over <= 0:
            best, quickest = result, seconds
    return best
