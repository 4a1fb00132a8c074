"""The algorithm of each op: the one with the least workspace ("m"), the fastest ("p"), or the fastest that fits ("f").

"m" and "p" are the memory- and performance-optimal algorithms of the vDNN paper (section IV-B). "f" works with any
policy that takes these two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from minidnn.costs import Costs
from minidnn.memory.plan import Plan
from minidnn.memory.policies.shared import probe
from minidnn.memory.policies.shared.search import Rooms
from minidnn.memory.schedule import aligned
from minidnn.program import Algorithm, Op, Program

Algorithms = str | Mapping[Op, Algorithm]  # "m", "p", or an algorithm for each op
Choosing = Callable[[Program, Costs, int, Algorithms], Plan]  # a policy that takes `algorithms`

ATTEMPTS = 8  # placements tried from each start, after those of "p" and "m"
FINE = 64  # the search ends once the rooms that do and do not fit differ by 1/64 of the budget


def choose(program: Program, costs: Costs, algorithms: Algorithms) -> dict[Op, Algorithm]:
    """An algorithm for each op of the program."""
    if isinstance(algorithms, Mapping):
        return dict(algorithms)
    pick = costs.least_memory if algorithms == "m" else costs.fastest
    return {op: pick(op) for op in program.ops}


def live_beside(
    order: Sequence[Op], curve: Iterable[int], algorithm: Mapping[Op, Algorithm], size: Callable[[int], int] = int
) -> dict[Op, int]:
    """{op: bytes live while it runs, without its own workspace}; for an op that runs several times, the most.

    curve: bytes live at each execution of `order`, with the workspaces of `algorithm`
    size:  maps a workspace's bytes to the bytes that it takes in the curve (`aligned`, if the curve counts so)
    """
    live: dict[Op, int] = {}
    for op, nbytes in zip(order, curve, strict=True):
        live[op] = max(live.get(op, 0), nbytes)
    return {op: nbytes - size(algorithm[op].workspace) for op, nbytes in live.items()}


def live_without_workspaces(program: Program, costs: Costs, plan: Plan) -> dict[Op, int]:
    """{op: aligned bytes live while it runs, if no op has a workspace}; for one that runs several times, the most."""
    bare = {op: Algorithm(a.name) for op, a in plan.algorithm.items()}
    result = probe.listing(program, costs, replace(plan, algorithm=bare))
    return live_beside(result.plan.order, probe.aligned_curve(result).tolist(), bare)


def fastest_within(
    costs: Costs,
    algorithm: Mapping[Op, Algorithm],
    live: Mapping[Op, int],
    room: int,
    size: Callable[[int], int] = int,
) -> dict[Op, Algorithm]:
    """{op: the fastest algorithm whose workspace fits into `room` bytes with the op's live bytes}; if none fits,
    the given one.

    A workspace lives only while its op runs, so no choice depends on another. `size`: as in `live_beside`.
    """
    result = dict(algorithm)
    for op, least in algorithm.items():
        choices = [c for c in costs.choices(op) if live[op] + size(c.algorithm.workspace) <= room]
        result[op] = min(choices, key=lambda c: (c.seconds, c.algorithm.workspace)).algorithm if choices else least
    return result


def fastest_that_fit(
    decide: Choosing, program: Program, costs: Costs, budget: int, enough: float = 0.0, attempts: int = ATTEMPTS
) -> Plan:
    """The policy's quickest plan that keeps the budget, with any choice of algorithms (":f").

    If the fastest algorithms ("p") fit, and need no more copies or re-runs than the leanest ("m"), their plan is
    returned. Otherwise faster algorithms replace the leanest ones where they fit beside the live bytes. The live bytes
    are those of the policy's plan under this budget. If the policy moves more under a budget of 0, its plan for that is
    a second start, since moving more makes room for workspaces.

    enough: the plan of "p" is also returned if its step takes at most so many times the least that any mixture can take
    (the leanest plan's order with the fastest algorithms). This saves time where `decide` takes much of it; so do fewer
    `attempts` from each start.

    Among the plans that keep the budget, the one with the shortest simulated step is returned. If not even the leanest
    algorithms keep it, their plan is returned, and the refusal names it.
    """
    fast, lean = decide(program, costs, budget, "p"), decide(program, costs, budget, "m")
    fits = probe.fits(program, costs, fast, budget)
    if fits and _moves(fast) == _moves(lean):
        return fast
    if fits and enough:
        bound = probe.seconds(program, costs, replace(lean, algorithm=choose(program, costs, "p")))
        if probe.seconds(program, costs, fast) <= enough * bound:
            return fast
    result = [fast] if fits else []
    if probe.fits(program, costs, lean, budget):
        result.append(_mixed(decide, program, costs, budget, lean, lean, attempts))
        least = decide(program, costs, 0, "m")
        if _moves(least) != _moves(lean):
            result.append(_mixed(decide, program, costs, budget, lean, least, attempts))
    if len(result) < 2:
        return result[0] if result else lean
    return min(result, key=lambda plan: probe.seconds(program, costs, plan))


def _moves(plan: Plan) -> tuple[object, ...]:
    """The parts of a plan that cost time in addition to one run of each op."""
    return plan.offloads, plan.order


def _mixed(
    decide: Choosing, program: Program, costs: Costs, budget: int, lean: Plan, start: Plan, attempts: int
) -> Plan:
    """The policy's plan with faster algorithms than those of `start`, which are the leanest; else `lean`.

    Each op takes the fastest algorithm that fits beside the op's live bytes in `start`. The room for both is the
    largest one found whose plan keeps the budget once it is placed.
    """
    least = {op: start.algorithm[op] for op in program.ops}
    live, best = live_without_workspaces(program, costs, replace(start, algorithm=least)), lean
    peak = max(live.values(), default=0)  # in a room as large no workspace fits
    rooms = Rooms(budget, attempts, budget // FINE, fitting=peak, again=True)
    for room in rooms:
        chosen = fastest_within(costs, least, live, room, aligned)
        plan = best if chosen == least else decide(program, costs, budget, chosen)
        rooms.over = 0 if chosen == least else probe.arena(program, costs, plan, budget) - budget
        if rooms.over <= 0:
            best = plan
    return best
