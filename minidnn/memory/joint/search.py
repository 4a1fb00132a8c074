"""A local search: decisions change one at a time, are repaired, and stay if the step is quicker, or hardly slower.

This is threshold accepting (Dueck, Scheuer: "Threshold accepting", Journal of Computational Physics 90, 1990). A change
is accepted if the step slows down by less than a threshold, which falls to zero. Limits are numbers of evaluations,
never time.
"""

from __future__ import annotations

import random

import numpy as np

from minidnn.memory.joint.evaluator import AGAIN, COPY, KEEP, NEVER, Evaluator, Outcome
from minidnn.memory.joint.repair import Change, Repair

THRESHOLD = 0.003  # of a step, at the beginning
REPAIRS = 4  # changes that may follow one that exceeds the limit
FEW = 10  # of the longest waits, slowest ops or dearest runs, from which one is changed


class Search:
    """Searches from the decisions of an evaluator, which must keep the limit."""

    def __init__(self, evaluator: Evaluator, repair: Repair) -> None:
        self.evaluator, self.repair = evaluator, repair
        facts = evaluator.facts
        self.decided = evaluator.may_copy | evaluator.may_run
        self.free = np.flatnonzero(self.decided).tolist()
        alike = [facts.together.get(p, [p]) for p in range(len(facts.ops))]
        self.several = [p for p, choices in enumerate(facts.choices) if len(choices) > 1 and p == alike[p][0]]
        self.fastest = np.array([facts.choices[p][-1].seconds for p in self.several])
        self.times = np.array([len(alike[p]) for p in self.several])
        self.inner = np.array([s.use < len(facts.ops) for s in evaluator.slots])

    def improve(self, limit: int, evaluations: int, seed: int) -> Outcome:
        """The outcome of the best decisions found, which the evaluator then has."""
        ev, r = self.evaluator, random.Random(seed)
        best = now = ev.evaluate(limit)
        assert best.kept, "a search begins with decisions that keep the limits"
        best_decisions = decisions = ev.save()
        self._look()
        first, end = ev.evaluations, ev.evaluations + evaluations
        while self.free and ev.evaluations < end:
            threshold = THRESHOLD * best.seconds * (end - ev.evaluations) / (end - first)
            self._change(r).apply(ev)
            found = self.repair.within(limit, REPAIRS)
            if found is None or found.seconds >= now.seconds + threshold * r.random():
                ev.restore(decisions)
                continue
            now, decisions = found, ev.save()
            self._look()
            if now.seconds < best.seconds:
                best, best_decisions = now, decisions
        ev.restore(best_decisions)
        return ev.evaluate(limit)

    def _look(self) -> None:
        """Note where the last answer loses time."""
        ev = self.evaluator
        waits = ev.view("trip_wait_in", "trips") + ev.view("trip_wait_out", "trips")
        slots = ev.view("trip_slot", "trips")
        longest = np.argsort(-waits, kind="stable")[:FEW]
        self.waits = [int(slots[k]) for k in longest.tolist() if waits[k] > 0 and ev.slots[slots[k]].last >= 0]
        lost = (ev.seconds[self.several] - self.fastest) * self.times
        self.slow = [self.several[k] for k in np.argsort(-lost, kind="stable")[:FEW].tolist() if lost[k] > 0]
        again = np.flatnonzero((ev.fate == AGAIN) & self.inner)
        dearest = np.argsort(-self.repair.run_seconds[again], kind="stable")[:FEW]
        self.runs = again[dearest].tolist()
        self.gone = np.flatnonzero((ev.fate != KEEP) & self.decided).tolist()

    def _change(self, r: random.Random) -> Change:
        """A change that may save time; often one at random."""
        draw = r.random()
        for share, candidates, change in (
            (0.25, self.waits, self._no_wait),
            (0.15, self.slow, self._faster),
            (0.20, self.runs, self._no_run),
            (0.10, self.gone, self._hold),
        ):
            if draw < share and candidates:
                return change(r, r.choice(candidates))
            draw -= share
        return self._any(r, r.choice(self.free))

    def _no_wait(self, r: random.Random, slot: int) -> Change:
        return Change("fate", slot, AGAIN if self.evaluator.may_run[slot] and r.random() < 0.5 else KEEP)

    def _faster(self, r: random.Random, op: int) -> Change:
        return Change(
            "choice", op, r.randrange(int(self.evaluator.choice[op]) + 1, len(self.evaluator.facts.choices[op]))
        )

    def _no_run(self, r: random.Random, slot: int) -> Change:
        return Change("fate", slot, COPY if self.evaluator.may_copy[slot] and r.random() < 0.5 else KEEP)

    def _hold(self, r: random.Random, slot: int) -> Change:
        return Change("hold", slot, 0 if self.evaluator.hold[slot] else r.choice((1, NEVER)))

    def _any(self, r: random.Random, slot: int) -> Change:
        ev = self.evaluator
        others = [KEEP] + [COPY] * bool(ev.may_copy[slot]) + [AGAIN] * bool(ev.may_run[slot])
        return Change("fate", slot, r.choice([fate for fate in others if fate != ev.fate[slot]]))
