"""A search that goes on for as long as it may: rounds of the local search (search.py), from several starts.

1. Each start gets a round, then the better half of them, until one is left. Starts are the decisions of plans, and the
   bound's answers, rounded.
2. After each round the decisions are placed. Live bytes leave holes in an arena: where it exceeds the budget, tensors
   stay away longer in the next rounds (`filled`), and where it keeps it, less long.
3. Where some rounds in a row find nothing, the search goes back to the decisions of the best plan, and in the end to
   all starts.

Time ends it, so that equal calls need not give equal plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from minidnn.memory.effort import Effort
from minidnn.memory.joint.adopted import adopt
from minidnn.memory.joint.evaluator import Decisions
from minidnn.memory.joint.planner import NEAR, Planner
from minidnn.memory.plan import Plan

ROUND = 0.5  # seconds that a round of the search is to take, about
FEWEST, MOST = 50, 20_000  # evaluations of a round
FIRST = 500  # evaluations of the first round
STEP = 0.0025  # part of the budget by which tensors fill more of it after an arena that keeps it
LEAST = 0.5  # part of the budget that tensors fill, at least
VAIN = 8  # rounds in a row that find nothing, until the search begins elsewhere


@dataclass(eq=False)
class Lane:
    """Decisions that the search works on, and their seconds."""

    decisions: Decisions
    seconds: float


class Rounds:
    """Searches for a plan of one program within a budget that takes fewer seconds than `seconds`.

    bound: of any plan of the program: where it is reached the search ends; None: it is not known
    best:  the quickest plan found whose arena keeps the budget; None: none is quicker
    """

    def __init__(self, planner: Planner, budget: int, seconds: float, bound: float | None, effort: Effort) -> None:
        self.planner, self.budget, self.seconds, self.effort = planner, budget, seconds, effort
        self.bound = bound
        self.best: Plan | None = None
        self.rounds = 0
        self._kept: Lane | None = None
        self._part, self._evaluations, self._vain = 1.0, FIRST, 0
        self._first = planner.evaluator.save()
        self._ends = effort.clock() + effort.seconds

    def run(self, plans: Sequence[Callable[[], Plan]]) -> None:
        """Search until the time is over. plans: makes plans to start from"""
        while self._goes_on():
            lanes = []
            for lane in self._starts(plans):
                lanes.append(lane)
                self._round(lane)
                if not self._goes_on():
                    return
            if not lanes:
                return
            self._narrowed(lanes)

    def _narrowed(self, lanes: list[Lane]) -> None:
        """Search on in the better half of the lanes, and again, and then in the best one until it finds no more."""
        while self._goes_on():
            lanes = sorted(lanes, key=lambda lane: lane.seconds)[: max(1, len(lanes) // 2)]
            if len(lanes) == 1:
                break
            for lane in lanes:
                self._round(lane)
        self._vain, back = 0, False
        while self._goes_on():
            if self._vain == VAIN:
                if back or self._kept is None:
                    return
                lanes, self._vain, back = [self._kept], 0, True
            self._round(lanes[0])
            back = back and self._vain > 0

    def _goes_on(self) -> bool:
        far = self.bound is None or self.seconds > self.bound * NEAR
        return far and self.effort.clock() < self._ends

    def _starts(self, plans: Sequence[Callable[[], Plan]]) -> Iterator[Lane]:
        """Decisions that keep the budget, one after the other, as long as there is time."""
        ev, repair = self.planner.evaluator, self.planner.repair
        for make in plans:
            adopt(ev, self._first, make())
            ev.filled = self._filled
            if (outcome := repair.walk(self.budget, self.rounds)) is not None:
                yield Lane(ev.save(), outcome.seconds)
        ev.filled = self._filled
        yield from (Lane(decisions, outcome.seconds) for outcome, decisions in self.planner.starts(self.budget))

    @property
    def _filled(self) -> int:
        return int(self.budget * self._part)

    def _round(self, lane: Lane) -> None:
        """Search from a lane's decisions, which then are the best found, and place them."""
        planner, ev, before = self.planner, self.planner.evaluator, self.effort.clock()
        ev.restore(lane.decisions)
        ev.filled = self._filled
        if planner.repair.within(self.budget) is None:  # with less to fill, tensors that stayed travel
            ev.restore(lane.decisions)
        self.rounds += 1
        outcome = planner.search.improve(self.budget, self._evaluations, self.rounds)
        took = self.effort.clock() - before
        wanted = int(self._evaluations * min(2.0, ROUND / took)) if took > 0 else MOST
        self._evaluations = min(MOST, max(FEWEST, wanted))
        lane.decisions, lane.seconds = ev.save(), outcome.seconds
        self._place(lane)

    def _place(self, lane: Lane) -> None:
        self._vain += 1
        if lane.seconds < self.seconds:
            plan = self.planner.evaluator.plan()
            arena = self.planner.arena(plan, self.budget)
            if arena <= self.budget:
                self.best, self.seconds, self._vain = plan, lane.seconds, 0
                self._kept = Lane(lane.decisions, lane.seconds)
                self._part = min(1.0, self._part + STEP)
            else:
                self._part = max(LEAST, self._part - max(STEP, (arena / self.budget - 1) / 2))
        elif self._vain % 2 == 0:
            self._part = min(1.0, self._part + STEP)
        over = "" if self.bound is None else f", {self.seconds / self.bound - 1:.1%} over the bound"
        left = max(0.0, self._ends - self.effort.clock())
        self.planner.tell(f"looking longer, {left:.0f} s left: {self.seconds * 1e3:.4g} ms{over} (Ctrl-C takes it)")
