"""A local search: decisions change one at a time, are repaired, and stay if the step is quicker, or hardly slower.

This is threshold accepting (Dueck, Scheuer: "Threshold accepting", Journal of Computational Physics 90, 1990). A change
is accepted if the step slows down by less than a threshold, which falls to zero. Limits are numbers of evaluations,
never time.

Mostly a change is made in several equal blocks of the net at once (alike.py): what pays in one of them pays in the
others, and half of them changed one by one often costs more than none.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from minidnn.memory.joint.alike import alike_gaps, alike_ops
from minidnn.memory.joint.evaluator import KEEP, NEVER, OFFLOAD, RECOMPUTE, Evaluator, Outcome
from minidnn.memory.joint.repair import Change, Repair

THRESHOLD = 0.003  # of a step, at the beginning
REPAIRS = 4  # changes that may follow one that exceeds the limit
TOGETHER = 0.7  # share of changes that are made in equal blocks, too
FEW = 10  # of the longest waits, slowest ops or dearest runs, from which one is changed


class Search:
    """Searches from the decisions of an evaluator, which must keep the limit."""

    def __init__(self, evaluator: Evaluator, repair: Repair) -> None:
        self.evaluator, self.repair = evaluator, repair
        index = evaluator.index
        self.decided = evaluator.may_offload | evaluator.may_recompute
        self.free = np.flatnonzero(self.decided).tolist()
        alike = [index.together.get(p, [p]) for p in range(len(index.ops))]
        self.several = [p for p, choices in enumerate(index.choices) if len(choices) > 1 and p == alike[p][0]]
        self.fastest = np.array([index.choices[p][-1].seconds for p in self.several])
        self.times = np.array([len(alike[p]) for p in self.several])
        self.gaps_like = alike_gaps(evaluator)
        self.ops_like = alike_ops(index, self.several)
        self.inner = np.array([s.use < len(index.ops) for s in evaluator.gaps])

    def improve(self, limit: int, evaluations: int, seed: int) -> Outcome:
        """The outcome of the best decisions found, which the evaluator then has."""
        ev, r = self.evaluator, random.Random(seed)
        best = now = ev.evaluate(limit)
        assert best.within_limits, "a search begins with decisions that keep the limits"
        best_decisions = decisions = ev.save()
        self._look()
        first, end = ev.evaluations, ev.evaluations + evaluations
        while self.free and ev.evaluations < end:
            threshold = THRESHOLD * best.seconds * (end - ev.evaluations) / (end - first)
            for change in self._together(r, self._change(r)):
                change.apply(ev)
            result = self.repair.within(limit, REPAIRS)
            if result is None or result.seconds >= now.seconds + threshold * r.random():
                ev.restore(decisions)
                continue
            now, decisions = result, ev.save()
            self._look()
            if now.seconds < best.seconds:
                best, best_decisions = now, decisions
        ev.restore(best_decisions)
        return ev.evaluate(limit)

    def keep(self, limit: int) -> Outcome:
        """The outcome after each tensor that is away in vain, since the step is quicker with it, has been kept."""
        ev = self.evaluator
        now = ev.evaluate(limit)
        for gap in np.flatnonzero((ev.fate != KEEP) & self.decided).tolist():
            was, ev.fate[gap] = ev.fate[gap], KEEP
            outcome = ev.evaluate(limit)
            if outcome.seconds < now.seconds:
                now = outcome
            else:
                ev.fate[gap] = was
        return ev.evaluate(limit)

    def _look(self) -> None:
        """Note where the last answer loses time."""
        ev = self.evaluator
        waits = ev.view("prefetch_wait", "offloads") + ev.view("offload_wait", "offloads")
        gaps = ev.view("offload_gap", "offloads")
        longest = np.argsort(-waits, kind="stable")[:FEW]
        self.waits = [int(gaps[k]) for k in longest.tolist() if waits[k] > 0 and ev.gaps[gaps[k]].last >= 0]
        lost = (ev.seconds[self.several] - self.fastest) * self.times
        self.slow = [self.several[k] for k in np.argsort(-lost, kind="stable")[:FEW].tolist() if lost[k] > 0]
        recompute = np.flatnonzero((ev.fate == RECOMPUTE) & self.inner)
        dearest = np.argsort(-self.repair.run_seconds[recompute], kind="stable")[:FEW]
        self.runs = recompute[dearest].tolist()
        self.gone = np.flatnonzero((ev.fate != KEEP) & self.decided).tolist()

    def _change(self, r: random.Random) -> Change:
        """A change that may save time; often one at random."""
        draw = r.random()
        for share, candidates, change in (
            (0.25, self.waits, self._no_wait),
            (0.15, self.slow, self._faster),
            (0.20, self.runs, self._no_run),
            (0.10, self.gone, self._pin),
        ):
            if draw < share and candidates:
                return change(r, r.choice(candidates))
            draw -= share
        return self._any(r, r.choice(self.free))

    def _together(self, r: random.Random, change: Change) -> list[Change]:
        """The change, mostly with the same one in equal blocks."""
        if r.random() >= TOGETHER:
            return [change]
        alike = self.ops_like if change.what == "choice" else self.gaps_like
        return [replace(change, key=key) for key in alike.some(r, change.key)]

    def _no_wait(self, r: random.Random, gap: int) -> Change:
        return Change("fate", gap, RECOMPUTE if self.evaluator.may_recompute[gap] and r.random() < 0.5 else KEEP)

    def _faster(self, r: random.Random, op: int) -> Change:
        return Change(
            "choice", op, r.randrange(int(self.evaluator.choice[op]) + 1, len(self.evaluator.index.choices[op]))
        )

    def _no_run(self, r: random.Random, gap: int) -> Change:
        return Change("fate", gap, OFFLOAD if self.evaluator.may_offload[gap] and r.random() < 0.5 else KEEP)

    def _pin(self, r: random.Random, gap: int) -> Change:
        return Change("pin_from", gap, 0 if self.evaluator.pin_from[gap] else r.choice((1, NEVER)))

    def _any(self, r: random.Random, gap: int) -> Change:
        ev = self.evaluator
        others = [KEEP] + [OFFLOAD] * bool(ev.may_offload[gap]) + [RECOMPUTE] * bool(ev.may_recompute[gap])
        return Change("fate", gap, r.choice([fate for fate in others if fate != ev.fate[gap]]))
