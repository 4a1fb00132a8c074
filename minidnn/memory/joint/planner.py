"""The joint plan of a program within a budget, with its host-resident tensors where they are: from the bound's answer
to decisions, to a plan that is placed.

1. The bound for the budget, and for a few that are smaller, says which tensors had better be away.
2. Each answer is rounded to decisions, and repaired (repair.py). These are the starts.
3. The best starts are searched for a while, the best of these for long (search.py).
4. The plan is placed. Where its arena exceeds the budget, the search goes on from there in two ways, and the quicker
   plan is taken: tensors leave sooner and come back later, for buffers that live shorter fit better; or fewer bytes
   may be live at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from minidnn.costs import Costs
from minidnn.memory.joint.adopted import adopt
from minidnn.memory.joint.bound import Bound, LowerBound, Relaxed
from minidnn.memory.joint.descents import SHORT, Descents
from minidnn.memory.joint.evaluator import KEEP, OFFLOAD, RECOMPUTE, Decisions, Evaluator, Outcome
from minidnn.memory.joint.index import LONG, SMALL, Index
from minidnn.memory.joint.repair import Repair
from minidnn.memory.joint.search import Search
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import Plan, complete
from minidnn.program import Program

SMALLER = (0.0, 0.05, 0.1, 0.2)  # parts by which further bounds have smaller budgets: rounding then needs less repair
STARTS = 3  # starts that the search works on
WORK = 8_000_000  # evaluations of all searches together, times ops
PER_DECISION = 100  # evaluations for each decision, at most
LEAST = 300  # evaluations of a search, however long the program is
# Parts of the budget (live, filled) that are tried one after the other where an arena exceeds it; of a long program
# only the first of each, since to place it takes seconds.
Ways = tuple[tuple[float, float], ...]
NARROWER: Ways = ((1.0, 0.98), (1.0, 0.96), (1.0, 0.94), (1.0, 0.92), (1.0, 0.9))
FEWER_LIVE: Ways = ((0.98, 0.98), (0.96, 0.96), (0.94, 0.94), (0.92, 0.92), (0.9, 0.9))
NARROWEST: Ways = ((1.0, 0.8), (1.0, 0.6), (1.0, 0.0))
LEANEST = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0)  # parts by which limits of lean plans exceed the bound's least
LESS = 3  # times that fewer bytes may be live, each time by as many as the arena exceeds the budget
ATTEMPTS = 3  # lean plans that are placed
FINE = 64  # the search for the least limit ends once those that are and are not kept differ by 1/64
HOPELESS = 1.05  # of the seconds that a plan must stay below: the last search does not save so many
NEAR = 1.0001  # of the bound: a start this good is not searched


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan, the seconds that it is predicted to take, and the bound."""

    plan: Plan
    seconds: float
    bound: Bound

    @property
    def with_bound(self) -> Plan:
        """The plan, with the bound."""
        return replace(self.plan, bound=self.bound.seconds)


class Planner:
    """Plans one program on one device, for as many budgets as are asked for."""

    def __init__(
        self,
        program: Program,
        costs: Costs,
        small: int = SMALL,
        tell: Callable[[str], object] = lambda text: None,
        copies: bool = True,
        search: bool = True,
    ) -> None:
        """
        small:  how many times smaller than the largest a tensor may be, for decisions to be made about it
        tell:   called with the work under way
        copies: whether tensors may leave for the host (index.py)
        search: whether a local search improves the plans

        Raises linear.NoSolver without the package highspy, NotCompiled without a C compiler.
        """
        self.program, self.costs, self.tell = program, costs, tell
        index = Index(program, costs, small, copies)
        self.evaluator = Evaluator(index)
        self.bound = LowerBound(index, may_host=False)
        self.repair = Repair(self.evaluator)
        self.search, self._searches = Search(self.evaluator, self.repair), search
        self._gap = {(s.tensor, s.last): i for i, s in enumerate(self.evaluator.gaps)}
        self._first = self.evaluator.fate.copy()
        self._nothing = self.evaluator.save()

    def within(self, budget: int, below: float = inf) -> Candidate | None:
        """The quickest plan found whose arena keeps the budget, if it takes less than `below` seconds; None: there is
        none, or none was found. The search gives up as soon as it stands too far above `below`."""
        self.evaluator.filled = None
        self.tell("the lower bound")
        relaxed = self.bound.relaxed(budget)
        if relaxed is None or relaxed.bound.seconds >= below:
            return None
        starts = self._starts(relaxed, budget)
        if not starts:
            return None
        self._away(relaxed)
        evaluations = (
            max(LEAST, min(WORK // len(self.program.ops), PER_DECISION * len(self.search.free))) * self._searches
        )
        enough = relaxed.bound.seconds * NEAR
        ends: list[tuple[float, int, Decisions]] = []
        for outcome, decisions in starts[:STARTS]:
            self._tell(f"start {len(ends) + 1}", outcome.seconds, relaxed.bound)
            self.evaluator.restore(decisions)
            if outcome.seconds > enough:
                outcome = self.search.improve(budget, evaluations // (2 * STARTS), 0)
            ends.append((outcome.seconds, len(ends), self.evaluator.save()))
            if outcome.seconds <= enough:
                break
        seconds, _, decisions = min(ends)
        if seconds > below * HOPELESS:
            return None
        self.evaluator.restore(decisions)
        if seconds > enough:
            self._tell("the best start", seconds, relaxed.bound)
            self.search.improve(budget, evaluations // 2, 1)
            seconds = self.search.keep(budget).seconds
        if seconds >= below or (result := self._placed(budget, relaxed.bound, evaluations // 4)) is None:
            return None
        return result if result.seconds < below else None

    def descended(self, budget: int, found: Candidate) -> Candidate:
        """A plan that is quicker than the one found, if descents lead to one (descents.py); they take long programs too
        long."""
        enough = found.bound.seconds * NEAR
        if len(self.program.ops) > SHORT or found.seconds <= enough or not self._searches:
            return found
        self._tell("descents", found.seconds, found.bound)
        adopt(self.evaluator, self._nothing, complete(self.program, self.costs, found.plan))
        if Descents(self.search).improve(budget, enough) is None:
            return found
        result = self._placed(budget, found.bound, 0)
        return result if result is not None and result.seconds < found.seconds else found

    def _tell(self, what: str, seconds: float, bound: Bound) -> None:
        self.tell(f"{what}, {seconds / bound.seconds - 1:.1%} over the bound")

    def leanest(self) -> Plan:
        """The plan with the lowest arena found, whatever its seconds."""
        self.evaluator.filled = 0
        least = self.bound.least()
        plans: list[tuple[int, int, Plan]] = []
        low, high = least, 0  # the largest limit below those that are kept, and the smallest that is
        for part in LEANEST:
            limit = int(least * (1 + part))
            if (plan := self._lean(limit)) is not None:
                plans.append((self.arena(plan, 0), limit, plan))
                high = high or limit
                if len(plans) == ATTEMPTS:
                    break
            elif not high:
                low = limit
        while high - low > high // FINE:
            middle = (low + high) // 2
            if (plan := self._lean(middle)) is not None:
                plans.append((self.arena(plan, 0), middle, plan))
            low, high = (middle, high) if plan is None else (low, middle)
        return min(plans)[2] if plans else Plan()

    def _lean(self, limit: int) -> Plan | None:
        """A plan with so many live bytes at most, whatever its seconds."""
        relaxed = self.bound.relaxed(limit)
        if relaxed is None:
            return None
        self._away(relaxed)
        self._round(relaxed)
        return None if self.repair.walk(limit, 0) is None else self.evaluator.plan()

    # ---- starts

    def starts(self, budget: int) -> list[tuple[Outcome, Decisions]]:
        """Decisions that keep the budget, from the bound's answers, the quickest first; none: there is no answer."""
        relaxed = self.bound.relaxed(budget)
        return [] if relaxed is None else self._starts(relaxed, budget)

    def _starts(self, relaxed: Relaxed, budget: int) -> list[tuple[Outcome, Decisions]]:
        """Decisions that keep the budget, the quickest first."""
        ev, enough = self.evaluator, relaxed.bound.seconds * NEAR
        ev.restore(replace(self._nothing, filled=ev.filled))
        all_there = ev.evaluate(budget)
        result = [(all_there, ev.save())] if all_there.within_limits else []
        for number, part in enumerate(SMALLER):
            if result and result[-1][0].seconds <= enough:
                break
            answer = relaxed if not part else self.bound.relaxed(int(budget * (1 - part)))
            if answer is None:
                break
            self._away(answer)
            self._round(answer)
            outcome = self.repair.walk(budget, number) if self._searches else self.repair.within(budget)
            if outcome is not None:
                result.append((outcome, ev.save()))
        return sorted(result, key=lambda start: start[0].seconds)

    def _away(self, relaxed: Relaxed) -> None:
        """Tell the repair which tensors are away in this answer."""
        self.repair.away[:] = 0.0
        for gap, keep in relaxed.keep.items():
            self.repair.away[self._gap[gap.tensor, gap.last]] = 1 - min(1.0, max(0.0, keep))

    def _round(self, relaxed: Relaxed) -> None:
        """Decide as the bound's answer does, in whole tensors; behind its last use a tensor is made again if wanted."""
        ev = self.evaluator
        ev.fate[:], ev.pin_from[:] = self._first, 0
        for gap, keep in relaxed.keep.items():
            i = self._gap[gap.tensor, gap.last]
            copies = ev.may_offload[i] and (
                relaxed.offload[gap] >= relaxed.recompute.get(gap, 0.0) or not ev.may_recompute[i]
            )
            if keep < 0.5 and (copies or ev.may_recompute[i]):
                ev.fate[i] = OFFLOAD if copies else RECOMPUTE
        behind = ~self.search.inner
        ev.fate[behind & ev.may_recompute] = RECOMPUTE
        ev.fate[behind & ev.may_offload & ~ev.may_recompute] = OFFLOAD
        for tensor, (held, copied) in relaxed.behind.items():
            i = self._gap[tensor, ev.index.uses[tensor][-1]]
            if held >= 0.5:
                ev.fate[i] = KEEP
            elif copied >= 0.5 and ev.may_offload[i]:
                ev.fate[i] = OFFLOAD
        for op, parts in enumerate(relaxed.faster):
            alike = ev.index.together.get(op, [op])
            if op == alike[0]:
                shares = np.mean([relaxed.faster[each] for each in alike], axis=0) if parts else parts
                ev.choose(op, max((i + 1 for i, part in enumerate(shares) if part >= 0.5), default=0))

    # ---- placement

    def _placed(self, budget: int, bound: Bound, evaluations: int) -> Candidate | None:
        """The quickest plan whose arena keeps the budget, of the present decisions or of some near them."""
        ev, first = self.evaluator, self.evaluator.save()
        result, _ = self._place(budget, bound, ev.evaluate(budget))
        if result is not None:
            return result
        result = self._searched(budget, bound, NARROWER, evaluations, None)
        ev.restore(first)
        result = self._searched(budget, bound, FEWER_LIVE, evaluations, result)
        if result is None:
            ev.restore(first)
            result = self._searched(budget, bound, NARROWEST, evaluations, None)
        if result is None:
            ev.restore(first)  # a repair in vain leaves decisions that are no plan
            ev.evaluate(budget)
            result = self._fewer_live(budget, bound)
        return result

    def _place(self, budget: int, bound: Bound, outcome: Outcome) -> tuple[Candidate | None, int]:
        """The plan of the present decisions, None if its arena exceeds the budget; and the arena."""
        self._tell("placing", outcome.seconds, bound)
        plan = self.evaluator.plan()
        arena = self.arena(plan, budget)
        return (Candidate(plan, outcome.seconds, bound) if arena <= budget else None), arena

    def _searched(
        self, budget: int, bound: Bound, ways: Ways, evaluations: int, result: Candidate | None
    ) -> Candidate | None:
        """The quickest of `result` and of the plans that keep the budget, where the search goes on in these ways."""
        for seed, (live, filled) in enumerate(ways[:1] if len(self.program.ops) > LONG else ways, start=2):
            self.evaluator.filled = int(budget * filled)
            if self.repair.walk(int(budget * live), 0) is None:  # or tensors that stayed travel, and the host is full
                break
            outcome = self.search.improve(int(budget * live), evaluations, seed)
            if result is not None and outcome.seconds >= result.seconds:  # with less room it may be quicker, by chance
                break
            result = self._place(budget, bound, outcome)[0] or result
        return result

    def _fewer_live(self, budget: int, bound: Bound) -> Candidate | None:
        """The plan of decisions with fewer live bytes than the present ones, by as many as their arena exceeds the
        budget; None: LESS times were in vain."""
        limit, arena = budget, self.arena(self.evaluator.plan(), budget)
        for _ in range(LESS):
            limit -= arena - budget
            if (outcome := self.repair.walk(limit, 0)) is None:
                return None
            result, arena = self._place(budget, bound, outcome)
            if result is not None:
                return result
        return None

    def arena(self, plan: Plan, enough: int) -> int:
        """Bytes of the plan's arena; it is searched for one of `enough` bytes."""
        listing = lower(self.program, complete(self.program, self.costs, plan))
        return place(listing, enough=enough, quick=enough > 0, by=self.costs.placement).arena
