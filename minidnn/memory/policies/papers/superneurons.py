"""SuperNeurons (Wang, Ye, Zhao, Wu, Li, Song, Xu, Kraska: "SuperNeurons: Dynamic GPU Memory Management for Training
Deep Neural Networks", PPoPP 2018), all of it under a budget.

Both policies do the least that fits, like the paper's runtime, whose cache moves nothing while there is room:

  1. Nothing moves and nothing runs again.
  2. The tensor cache (section 3.3.2, superneurons_cache.py) sends the least recently used tensors to
     the host when room is needed.
  3. Cost-aware recomputation (3.4, superneurons_steps.py), and the cache for all other tensors.

  superneurons_on_demand  The paper's runtime, which does not know what comes: a copy out begins where room is needed,
                          and the first of the three that fits is taken.
  superneurons            SuperNeurons-style: a copy out begins as soon as a tensor that will leave has its value, and
                          of the last two the one with the shorter simulated step is taken. For long programs the
                          simulation would take too much time; then the third is taken if it fits, else the second.

Ops take the fastest algorithms whose workspaces fit into the bytes that their tensors leave (3.5). If nothing fits, the
plan is the leanest: all idle tensors are on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, in_place_sharing
from minidnn.memory.policies.papers.superneurons_cache import TensorCache
from minidnn.memory.policies.papers.superneurons_steps import route
from minidnn.memory.policies.shared.algorithms import choose, fastest_within, live_beside
from minidnn.memory.policies.shared.probe import arena, seconds
from minidnn.memory.policies.shared.recompute import Repeatable
from minidnn.memory.schedule import aligned
from minidnn.program import Op, Program

ATTEMPTS = 4  # caps tried: each is lower by the bytes that the last placement had too many
TRIES = 2  # rooms for workspaces that are tried; after these the plan has the leanest algorithms
SLACK = 128  # if tensors move, 1/128 of the budget is set aside for placement from the start
SIMULATED = 3000  # ops; for longer programs the second and third way are not both simulated


def superneurons(program: Program, costs: Costs, budget: int) -> Plan:
    """A tensor cache with foresight, and recomputation."""
    kept = _CachedOrder(program, costs, budget, program.ops)
    if kept.still and (plan := kept.within()) and not plan.offloads:
        return plan
    again = _with_segments_again(program, costs, budget)
    result = []
    for way in (again, kept):
        if plan := way.within():
            result.append(plan)
            if len(program.ops) > SIMULATED:
                break
    if result:
        return result[0] if len(result) == 1 else min(result, key=lambda plan: seconds(program, costs, plan))
    return _leanest(program, costs, (again, kept))


def superneurons_on_demand(program: Program, costs: Costs, budget: int) -> Plan:
    """A tensor cache that evicts on demand; recomputation."""
    kept = _CachedOrder(program, costs, budget, program.ops, on_demand=True)
    if plan := kept.within():
        return plan
    again = _with_segments_again(program, costs, budget, on_demand=True)
    return again.within() or _leanest(program, costs, (again, kept))


def _with_segments_again(program: Program, costs: Costs, budget: int, on_demand: bool = False) -> _CachedOrder:
    order = route(Repeatable(program, in_place_sharing(program)))
    return _CachedOrder(program, costs, budget, order, on_demand)


def _leanest(program: Program, costs: Costs, ways: Sequence[_CachedOrder]) -> Plan:
    return min((way.leanest() for way in ways), key=lambda plan: arena(program, costs, plan))


class _CachedOrder:
    """One order of a step, with the tensor cache under a cap of bytes.

    The cap begins at the budget, and goes down by the bytes that placement needs beyond it.
    """

    def __init__(
        self, program: Program, costs: Costs, limit: int, order: tuple[Op, ...], on_demand: bool = False
    ) -> None:
        self.program, self.costs, self.limit = program, costs, limit
        self.plan = Plan(order=order, algorithm=choose(program, costs, "m"), share=in_place_sharing(program))
        self.cache = TensorCache(program, costs, self.plan, on_demand)
        self.slack, self.cap = limit // SLACK, limit
        self.cached = self.cache.keep(limit)
        self.still = not self.cached.offloads
        if not self.still:
            self.cap -= self.slack
            self.cached = self.cache.keep(self.cap)

    def within(self) -> Plan | None:
        """A plan whose arena keeps the budget, under the first cap that gives one; None if no cap does.

        Workspaces get the bytes that are left.
        """
        for attempt in range(ATTEMPTS):
            if self.cached.peak > self.limit:
                return None
            over = self._over(self._moved())
            if over <= 0:
                return self._with_faster_algorithms()
            self.cap = min(self.cap, self.cached.peak) - over - self.slack
            self.cached = self.cache.keep(self.cap)
            if self.cached.peak > self.cap or attempt == ATTEMPTS - 1:
                break
        self.cached = self.cache.keep(self._floor())
        return self._with_faster_algorithms() if self._over(self._moved()) <= 0 else None

    def leanest(self) -> Plan:
        """The plan with as few bytes on the device as this order allows."""
        return replace(self.plan, offloads=self.cache.keep(self._floor()).offloads)

    def _floor(self) -> int:
        return self.cache.keep(0).peak

    def _over(self, plan: Plan) -> int:
        """Bytes by which the plan's arena exceeds the budget; 0 or less if it keeps the budget."""
        return arena(self.program, self.costs, plan, self.limit) - self.limit

    def _moved(self) -> Plan:
        return replace(self.plan, offloads=self.cached.offloads)

    def _with_faster_algorithms(self) -> Plan:
        """The plan with the fastest algorithms whose workspaces fit with the live bytes wherever their ops run."""
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
