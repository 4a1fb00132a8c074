"""SuperNeurons (Wang, Ye, Zhao, Wu, Li, Song, Xu, Kraska: "SuperNeurons: Dynamic GPU Memory Management for Training
Deep Neural Networks", PPoPP 2018), all of it under a budget.

It does the least that fits, as the runtime of the paper does, whose cache moves nothing while there is room:
  1. nothing moves and nothing runs again;
  2. the tensor cache (section 3.3.2, tensor_cache.py) lets what was used longest ago go to the host as room is needed;
  3. cost-aware recomputation (3.4, superneurons_steps.py), and the cache for what is left.
Of the last two the one whose step is shorter on the simulator is taken, or, where the program is so long that this
would take its time, the third, if it fits. Convolutions take the fastest algorithm whose workspace fits into what is
left beside them (3.5), tensors first. Where nothing fits, the plan is the leanest: all that is idle is on the host.
"""

from __future__ import annotations

from dataclasses import replace

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, in_place_sharing
from minidnn.memory.policies.algorithms import choose, fastest_within, live_beside
from minidnn.memory.policies.probe import arena, seconds
from minidnn.memory.policies.recompute import Repeatable
from minidnn.memory.policies.superneurons_cache import TensorCache
from minidnn.memory.policies.superneurons_steps import route
from minidnn.memory.schedule import aligned
from minidnn.program import Program

ATTEMPTS = 4  # caps tried: each leaves aside what the placement under the last one overshot
TRIES = 2  # rooms for workspaces tried, before there are none
SLACK = 128  # where things move, placement is given this part of the budget from the start
SIMULATED = 3000  # ops of a program of which both ways of training it in little memory are simulated


def superneurons(program: Program, costs: Costs, budget: int) -> Plan:
    share = in_place_sharing(program)
    least = choose(program, costs, "m")
    kept = _Rung(program, costs, Plan(order=program.ops, algorithm=least, share=share), budget)
    if kept.still and (plan := kept.within()) and not plan.trips:
        return plan
    again = _Rung(program, costs, Plan(order=route(Repeatable(program, share)), algorithm=least, share=share), budget)
    found = []
    for rung in (again, kept):
        if plan := rung.within():
            found.append(plan)
            if len(program.ops) > SIMULATED:
                break
    if found:
        return found[0] if len(found) == 1 else min(found, key=lambda plan: seconds(program, costs, plan))
    return min((rung.leanest() for rung in (again, kept)), key=lambda plan: arena(program, costs, plan))


class _Rung:
    """One order of a step, with the tensor cache under a cap that begins at the budget and goes down to what placement
    makes of it."""

    def __init__(self, program: Program, costs: Costs, plan: Plan, limit: int) -> None:
        self.program, self.costs, self.plan, self.limit = program, costs, plan, limit
        self.cache = TensorCache(program, costs, plan)
        self.slack, self.cap = limit // SLACK, limit
        self.cached = self.cache.keep(limit)
        self.still = not self.cached.trips
        if not self.still:
            self.cap -= self.slack
            self.cached = self.cache.keep(self.cap)

    def within(self) -> Plan | None:
        """A plan whose arena is within the budget, under the first cap that gives one; workspaces from what is left."""
        for attempt in range(ATTEMPTS):
            if self.cached.peak > self.limit:
                return None
            over = self._over(self._moved())
            if over <= 0:
                return self._quicker()
            self.cap = min(self.cap, self.cached.peak) - over - self.slack
            self.cached = self.cache.keep(self.cap)
            if self.cached.peak > self.cap or attempt == ATTEMPTS - 1:
                break
        self.cached = self.cache.keep(self._floor())
        return self._quicker() if self._over(self._moved()) <= 0 else None

    def leanest(self) -> Plan:
        """As little on the device as this order allows."""
        return replace(self.plan, trips=self.cache.keep(self._floor()).trips)

    def _floor(self) -> int:
        return self.cache.keep(0).peak

    def _over(self, plan: Plan) -> int:
        """By how many bytes the plan's arena exceeds the budget; 0 or less: it does not."""
        return arena(self.program, self.costs, plan, self.limit) - self.limit

    def _moved(self) -> Plan:
        return replace(self.plan, trips=self.cached.trips)

    def _quicker(self) -> Plan:
        """For each convolution the fastest algorithm whose workspace fits beside what is live wherever it runs."""
        least = self.plan.algorithm
        live = live_beside(self.plan.order, self.cached.live.tolist(), least, aligned)
        room = self.limit if self.still else self.limit - self.slack
        for _ in range(TRIES):
            algorithm = fastest_within(self.costs, least, live, room, aligned)
            plan = replace(self._moved(), algorithm=algorithm)
            over = self._over(plan)
            if over <= 0:
                return plan
            room -= over + self.limit // 16
        return self._moved()
