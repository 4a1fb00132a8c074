"""Descents: from many starts, decisions change one at a time until no single change is quicker. For short programs.

There an evaluation takes microseconds, far less than choosing what to change (search.py), and the quickest plan may
have little in common with the bound's answer. So the first starts are decisions at random. Later ones are the best
found, with a few changes at random. In the end two decisions of the best change at once.
"""

from __future__ import annotations

import random
from itertools import combinations
from math import inf
from typing import NamedTuple

from minidnn.memory.joint.evaluator import KEEP, NEVER, OFFLOAD, RECOMPUTE, Decisions, Evaluator, Outcome, TooLong
from minidnn.memory.joint.search import Search

SHORT = 100  # ops: longer programs have too many single changes
WORK = 500_000  # evaluations, times ops: a tenth of a second or two
AT_RANDOM, KICKED = 0.4, 0.8  # shares of the evaluations until which starts are at random, and kicks of the best
PINS = (0, 1, NEVER)  # what `pin_from` may be where a tensor is away
KICKS = 5  # changes at random, at most, after which a descent begins anew
QUICKER = 1 - 1e-9  # of a step's seconds: less than this is quicker


class Move(NamedTuple):
    """A decision: about a gap, or about an op's algorithm, whose number then stands for the fate."""

    key: int  # the gap, or ~op
    fate: int
    pin_from: int = 0

    def apply(self, to: Evaluator) -> None:
        if self.key < 0:
            to.choose(~self.key, self.fate)
        else:
            to.fate[self.key], to.pin_from[self.key] = self.fate, self.pin_from

    def now(self, of: Evaluator) -> Move:
        """The present decision about the same."""
        if self.key < 0:
            return Move(self.key, int(of.choice[~self.key]))
        return Move(self.key, int(of.fate[self.key]), int(of.pin_from[self.key]))


class Descents:
    """Descends from the decisions of a search's evaluator, and from others."""

    def __init__(self, search: Search) -> None:
        self.evaluator, self.repair = search.evaluator, search.repair
        numbers = {op: range(len(self.evaluator.index.choices[op])) for op in search.several}
        self._fates = {gap: self._open(gap) for gap in search.free}
        self._choices = [[Move(~op, number) for number in numbers[op]] for op in search.several]
        self.moves = [Move(gap, KEEP) for gap in self._fates]
        self.moves += [Move(gap, fate, pin) for gap, fates in self._fates.items() for fate in fates[1:] for pin in PINS]
        self.moves += [move for moves in self._choices for move in moves]

    def _open(self, gap: int) -> list[int]:
        """The fates that a gap may have."""
        ev = self.evaluator
        return [KEEP, *[OFFLOAD] * bool(ev.may_offload[gap]), *[RECOMPUTE] * bool(ev.may_recompute[gap])]

    def improve(self, limit: int, enough: float) -> Outcome | None:
        """The outcome of the best decisions found, which the evaluator then has; None: none keep the limit. The search
        ends where they take at most `enough` seconds."""
        ev, r = self.evaluator, random.Random(0)
        if not self.moves:
            return self.repair.within(limit)
        begin, evaluations = ev.evaluations, WORK // len(ev.index.ops)
        best = self._descended(limit, r) or (inf, ev.save())
        while (share := (ev.evaluations - begin) / evaluations) < KICKED and best[0] > enough:
            if share < AT_RANDOM or best[0] == inf:
                self._start(r)
            else:
                self._kick(r, best[1])
            found = self._descended(limit, r)
            if found is not None and found[0] * QUICKER <= best[0]:  # of equals the latter, so that kicks move on
                best = found
        ev.restore(best[1])
        if enough < best[0] < inf:
            self._pairs(limit, best[0], begin + evaluations, r)
        return None if best[0] == inf else ev.evaluate(limit)

    def _start(self, r: random.Random) -> None:
        """Decisions at random: mostly of one kind, or of each."""
        weight = [r.random() ** 2 + 0.01 for _ in (KEEP, OFFLOAD, RECOMPUTE)]
        for gap, fates in self._fates.items():
            Move(gap, r.choices(fates, [weight[fate] for fate in fates])[0]).apply(self.evaluator)
        for moves in self._choices:
            r.choice(moves).apply(self.evaluator)

    def _kick(self, r: random.Random, best: Decisions) -> None:
        """The best decisions, with a few changes at random."""
        self.evaluator.restore(best)
        for _ in range(r.randint(1, KICKS)):
            r.choice(self.moves).apply(self.evaluator)

    # ---- descents

    def _descended(self, limit: int, r: random.Random) -> tuple[float, Decisions] | None:
        """What the present decisions lead to, once repaired: seconds and decisions; None: no repair is found."""
        outcome = self.repair.within(limit)
        return None if outcome is None else (self._descend(limit, outcome.seconds, r), self.evaluator.save())

    def _descend(self, limit: int, seconds: float, r: random.Random) -> float:
        """Make single changes that are quicker until there is none; the seconds are those of the present decisions."""
        moves = r.sample(self.moves, len(self.moves))
        vain = at = 0
        while vain < len(moves):
            found = self._try(limit, seconds, moves[at])
            vain, seconds = (vain + 1, seconds) if found is None else (0, found)
            at = (at + 1) % len(moves)
        return seconds

    def _pairs(self, limit: int, seconds: float, end: int, r: random.Random) -> None:
        """Make pairs of changes that are quicker until there is none, or so many evaluations were made."""
        pairs = combinations(self.moves, 2)
        while self.evaluator.evaluations < end and (pair := next(pairs, None)) is not None:
            if (found := self._try(limit, seconds, *pair)) is not None:
                seconds, pairs = self._descend(limit, found, r), combinations(self.moves, 2)

    def _try(self, limit: int, seconds: float, *moves: Move) -> float | None:
        """Make the moves if that takes fewer seconds, and say how many; None: it does not."""
        ev = self.evaluator
        before = [move.now(ev) for move in moves]
        if before[0] == moves[0] or before[-1] == moves[-1]:
            return None
        for move in moves:
            move.apply(ev)
        try:
            if (found := ev.evaluate(limit).seconds) < seconds * QUICKER:
                return found
        except (TooLong, ValueError):
            pass
        for move in before:
            move.apply(ev)
        return None
