"""SuperNeurons (Wang, Ye, Zhao, Wu, Li, Song, Xu, Kraska: "SuperNeurons: Dynamic GPU Memory Management for Training
Deep Neural Networks", PPoPP 2018). Its techniques, each on top of the one before:

  superneurons_offload     liveness (3.2) and the unified tensor pool (3.3.1): what convolutions write leaves for the
                           host beside the layers up to the next one, and comes back beside a convolution's backward
  superneurons_speed       and recomputation (3.4): between checkpoints nothing outlives forward; each segment runs
                           again once, for the first backward layer that needs it, and stays (speed-centric)
  superneurons_memory      the same, but it runs again for every backward layer, and only what that reads stays
                           (memory-centric)
  superneurons_cost_aware  speed-centric where a segment then holds no more than l_peak, the most that any one layer's
                           backward needs; else memory-centric
  superneurons             everything under a budget: see below

Checkpoints are what convolutions, inner products, joins, concatenations, forks and losses write: most of the time goes
into making those, and most of the memory into holding the rest. A checkpoint that later layers work on in place is
their last value. A map with several consumers is one where the program has no fork layers. The route (3.1) is the
program's order: a layer stands after all that it reads.

`superneurons` does the least that fits, as the runtime of the paper does whose cache moves nothing while there is room:
  1. nothing moves and nothing runs again;
  2. the tensor cache (3.3.2, tensor_cache.py) lets what was used longest ago go to the host when room is needed;
  3. recomputation, cost-aware, and the cache for what is left.
Convolutions take the fastest algorithm whose workspace fits into what is left beside them (3.5), tensors first.
Where even that does not fit, its plan is the leanest: all that is idle is on the host.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from minidnn.costs import Costs
from minidnn.memory.lower import group, lower, residencies
from minidnn.memory.placement import place
from minidnn.memory.plan import Plan, Point, Share, Trip, complete, in_place
from minidnn.memory.policies.liveness import choose
from minidnn.memory.policies.recompute import FORWARD, Repeatable, interleave, needs
from minidnn.memory.policies.tensor_cache import TensorCache
from minidnn.memory.schedule import Listing, aligned
from minidnn.memory.simulator import simulate
from minidnn.program import Op, Phase, Program, Tensor

CHECKPOINTS = ("convolution", "inner_product", "eltwise", "concat", "split", "softmax", "softmax_loss")
POOLED = ("convolution", "eltwise", "concat", "split")  # whose results leave: the others' are small or made again


def superneurons_offload(program: Program, costs: Costs, budget: int | None = None, algorithms: str = "m") -> Plan:
    share = in_place(program)
    return _pooled(program, costs, program.ops, share, algorithms)


def superneurons_speed(program: Program, costs: Costs, budget: int | None = None, algorithms: str = "m") -> Plan:
    return _recomputed(program, costs, algorithms, "speed")


def superneurons_memory(program: Program, costs: Costs, budget: int | None = None, algorithms: str = "m") -> Plan:
    return _recomputed(program, costs, algorithms, "memory")


def superneurons_cost_aware(program: Program, costs: Costs, budget: int | None = None, algorithms: str = "m") -> Plan:
    return _recomputed(program, costs, algorithms, "cost")


def _recomputed(program: Program, costs: Costs, algorithms: str, how: str) -> Plan:
    share = in_place(program)
    return _pooled(program, costs, route(Repeatable(program, share), how), share, algorithms)


def _pooled(program: Program, costs: Costs, order: tuple[Op, ...], share: Share, algorithms: str) -> Plan:
    trips = offloads(Repeatable(program, share), order)
    return Plan(order=order, trips=trips, algorithm=choose(program, costs, algorithms), share=share)


STEPS = {
    "superneurons_offload": superneurons_offload,
    "superneurons_speed": superneurons_speed,
    "superneurons_memory": superneurons_memory,
    "superneurons_cost_aware": superneurons_cost_aware,
}


# ---- everything under a budget -------------------------------------------------------------------------------

ATTEMPTS = 4  # caps tried: each leaves aside what the placement under the last one overshot
TRIES = 2  # rooms for workspaces tried, before there are none
SLACK = 128  # where things move, placement is given this part of the budget from the start
SIMULATED = 3000  # ops of a program of which both ways of training it in little memory are simulated


def superneurons(program: Program, costs: Costs, budget: int | None = None) -> Plan:
    limit = costs.memory if budget is None else budget
    share = in_place(program)
    least = choose(program, costs, "m")
    kept = _Rung(program, costs, Plan(order=program.ops, algorithm=least, share=share), limit)
    if kept.still and (plan := kept.within()) and not plan.trips:
        return plan
    again = _Rung(program, costs, Plan(order=route(Repeatable(program, share)), algorithm=least, share=share), limit)
    found = []
    for rung in (again, kept):
        if plan := rung.within():
            found.append(plan)
            if len(program.ops) > SIMULATED:
                break
    if found:
        return found[0] if len(found) == 1 else min(found, key=lambda plan: _seconds(program, costs, plan))
    return min((rung.leanest() for rung in (again, kept)), key=lambda plan: _arena(program, costs, plan))


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
        return _arena(self.program, self.costs, plan, self.limit) - self.limit

    def _moved(self) -> Plan:
        return replace(self.plan, trips=self.cached.trips)

    def _quicker(self) -> Plan:
        """For each convolution the fastest algorithm whose workspace fits beside what is live wherever it runs."""
        most: dict[Op, int] = {}
        for op, live in zip(self.plan.order, self.cached.live.tolist(), strict=True):
            most[op] = max(most.get(op, 0), live)
        room = self.limit if self.still else self.limit - self.slack
        for _ in range(TRIES):
            algorithm = dict(self.plan.algorithm)
            for op, least in self.plan.algorithm.items():
                left = room - most[op] + aligned(least.workspace)
                choices = [c for c in self.costs.choices(op) if aligned(c.algorithm.workspace) <= left]
                if choices:
                    algorithm[op] = min(choices, key=lambda c: (c.seconds, c.algorithm.workspace)).algorithm
            plan = replace(self._moved(), algorithm=algorithm)
            over = self._over(plan)
            if over <= 0:
                return plan
            room -= over + self.limit // 16
        return self._moved()


def _arena(program: Program, costs: Costs, plan: Plan, enough: int = 0) -> int:
    """Bytes of the plan's arena, without its instructions; where it is no more than `enough`, not the lowest."""
    plan = complete(program, costs, plan)
    buffers = group(program, plan, residencies(program, plan))
    return place(Listing(program, plan, (), tuple(buffers), ()), enough=enough).arena


def _seconds(program: Program, costs: Costs, plan: Plan) -> float:
    return simulate(place(lower(program, complete(program, costs, plan))), costs).seconds


# ---- the unified tensor pool ---------------------------------------------------------------------------------


def offloads(able: Repeatable, order: Sequence[Op]) -> tuple[Trip, ...]:
    """What leaves does so as soon as it is made, and its bytes are free once the next convolution and all its readers
    in forward have run. Each convolution's backward fetches what is used from the next one's on."""
    first: dict[Op, Point] = {}
    starts: list[Point] = []  # of the convolutions' backward, with what runs again for it
    uses: dict[Tensor, list[Point]] = defaultdict(list)
    for p, op in enumerate(order):
        first.setdefault(op, p)
        if op.kind.startswith("convolution.") and op.phase is Phase.BACKWARD and order[p - 1].layer != op.layer:
            starts.append(p)
        for t in op.tensors:
            uses[t].append(p)
    starts = [_with_runs(able, order, p) for p in starts]
    leaving: dict[Tensor, Op] = {}  # and the next convolution
    waiting: list[Tensor] = []
    for op in able.program.ops[: able.forward]:
        kind = op.kind.split(".")[0]
        if kind == "convolution":
            leaving |= dict.fromkeys(waiting, op)
            waiting = []
        if kind in POOLED:
            waiting += [able.final(t) for t in op.writes]
    trips = []
    for t, after in leaving.items():
        points = uses[t]
        k = bisect_left(points, able.forward)
        if k == len(points) or t in able.program.outputs or any(t in order[p].writes for p in points[k:]):
            continue
        written = next(p for p in points if t in order[p].writes)
        free = max(first[after], points[k - 1]) + 1
        if free <= points[k]:
            i = bisect_left(starts, points[k])
            trips.append(Trip(t, written + 1, free, max(free, starts[i - 1] if i else points[k]), points[k]))
    return tuple(trips)


def _with_runs(able: Repeatable, order: Sequence[Op], p: Point) -> Point:
    while p > able.forward and order[p - 1].phase in FORWARD:
        p -= 1
    return p


# ---- cost-aware recomputation --------------------------------------------------------------------------------


def route(able: Repeatable, how: str = "cost") -> tuple[Op, ...]:
    """The order of a step that keeps checkpoints alone. `how`: "speed", "memory" or "cost" (aware)."""
    dropped = able.droppable() - checkpoints(able)
    segments = _segments(able, dropped)
    layers = able.layers()
    touched = {layer[0].layer: needs(able, layer) for layer in layers}
    peak = max(touched.values(), default=0)
    later: dict[int, list[Tensor]] = defaultdict(list)  # of each segment, what backward reads
    for t in dict.fromkeys(t for layer in layers for op in layer for t in op.reads if t in dropped):
        later[segments[able.maker[t]]].append(t)
    slow = set()  # segments that are memory-centric
    for k, wanted in later.items():
        runs = able.runs(wanted, dropped, set())
        held = sum(t.nbytes for op in runs[:-1] for t in op.writes if t not in able.share)
        if how == "memory" or (how == "cost" and held + touched.get(runs[-1].layer, 0) > peak):
            slow.add(k)
    have: set[Tensor] = set()
    brief: set[Tensor] = set()  # of these, what the next layer may not find

    def again(layer: list[Op]) -> list[Op]:
        reads = {t for op in layer for t in op.reads if t in dropped}
        missing = [t for t in reads if t not in have]
        wanted = list(missing)
        for k in {segments[able.maker[t]] for t in missing} - slow:
            wanted += later[k]
        runs = able.runs(wanted, dropped, have)
        able.after(runs, have)
        brief.update(t for op in runs for t in op.writes if t in dropped and segments[op] in slow)
        gone = [t for t in brief if t not in reads]
        have.difference_update(gone)
        brief.difference_update(gone)
        return runs

    return interleave(able, again)


def checkpoints(able: Repeatable) -> set[Tensor]:
    """What outlives forward: the last values of units with a checkpoint layer in them, and forked maps."""
    readers: dict[Tensor, set[str]] = defaultdict(set)
    kept: set[Tensor] = set()
    for op in able.program.ops[: able.forward]:
        if op.kind.split(".")[0] in CHECKPOINTS:
            kept.update(able.final(t) for t in op.writes)
        for t in op.reads:
            readers[t].add(op.layer)
    return kept | {t for t, layers in readers.items() if len(layers) > 1 and t not in able.later}


def _segments(able: Repeatable, dropped: set[Tensor]) -> dict[Op, int]:
    """For each op that may run again, its segment: ops that dropped tensors join."""
    parent: dict[Op, Op] = {}

    def root(op: Op) -> Op:
        while parent[op] is not op:
            parent[op] = op = parent[parent[op]]
        return op

    for op in able.program.ops[: able.forward]:
        parent[op] = op
        for t in op.reads:
            if t in dropped:
                parent[root(able.maker[t])] = op
    number = {op: k for k, op in enumerate(parent)}
    return {op: number[root(op)] for op in parent}
