"""Repair: changes of decisions until their bytes keep the limits of device and host, the cheapest per byte first.

It looks at the execution that exceeds the limit by the most bytes. There an idle tensor may be offloaded or dropped; a
tensor that came back early may leave once more; the op may take a leaner algorithm; and a tensor that is recomputed
there may be kept or copied instead. No tensor is offloaded to a host that is full. If the host's limit is exceeded,
some tensors are recomputed or kept instead.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise

import numpy as np

from minidnn.memory.joint.evaluator import KEEP, NEVER, OFFLOAD, RECOMPUTE, Evaluator, Outcome, TooLong
from minidnn.memory.plan import Point
from minidnn.memory.schedule import aligned

HIDDEN = 0.3  # share of a copy's seconds that is assumed to slow the step down
TRUST = 0.9  # discount on the cost of a change that the linear relaxation also makes
STEPS = 400  # changes of a repair in order of cost, and after these
WALK = 1500  # changes at random, near the cheapest ones
UPHILL = 0.3  # share by which a random change may make the excess worse
PIN_FROM, LEANER = 3, 4  # kinds of changes, beside the fates


@dataclass(frozen=True)
class Change:
    """One decision changed: of a gap its "fate" or "pin_from", or of an op its "choice" of algorithm."""

    what: str
    key: int
    value: int

    def apply(self, to: Evaluator) -> None:
        if self.what == "choice":
            to.choose(self.key, self.value)
        else:
            (to.fate if self.what == "fate" else to.pin_from)[self.key] = self.value


class Repair:
    """Repairs the decisions of one evaluator.

    away: float64 (gaps,), the part of each slot's tensor that is away in the bound's answer; may be written
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        arrays, index = evaluator.arrays, evaluator.index
        tensor = np.array([evaluator.number[s.tensor] for s in evaluator.gaps], np.int64)
        self.size, self.place, self.tensor = arrays["size"][tensor], arrays["place"][tensor], tensor
        self.copy_seconds = (arrays["out_seconds"] + arrays["in_seconds"])[tensor]
        fastest = np.array([c[-1].seconds for c in index.choices])
        maker = arrays["maker"][tensor]
        self.run_seconds = np.where(maker >= 0, fastest[np.maximum(maker, 0)], np.inf)
        self.away = np.zeros(len(evaluator.gaps))
        self._copies, self._has_bytes = HIDDEN * self.copy_seconds, self.size > 0
        self._all = np.ones(len(evaluator.gaps), bool)
        self.together = index.together
        self.leaner = [  # {op: (bytes, seconds) of each algorithm less than the next}
            [
                (aligned(fast.algorithm.workspace) - aligned(lean.algorithm.workspace), lean.seconds - fast.seconds)
                for lean, fast in pairwise(choices)
            ]
            for choices in index.choices
        ]

    def within(self, limit: int, steps: int = STEPS) -> Outcome | None:
        """The outcome after changes that keep the limits; None if no order of `steps` changes does."""
        done: set[Change] = set()
        result = self._evaluated(limit)
        while result is not None and not result.within_limits:
            need = result.beyond
            for change, gain in self.options(result):
                if change not in done:
                    change.apply(self.evaluator)
                    done.add(change)
                    need -= gain
                    if need <= 0:
                        break
            if need == result.beyond or not steps:
                return None
            steps -= 1
            result = self._evaluated(limit)
        return result

    def walk(self, limit: int, seed: int) -> Outcome | None:
        """Like `within`. Where that fails, changes at random lower the bytes, at times raise them. None: in vain."""
        if (result := self.within(limit)) is not None:
            return result
        r = random.Random(seed)
        now = self._evaluated(limit)
        if now is None or now.within_limits:  # the last change of `within` may have been enough
            return now
        start = self.evaluator.save()
        for _ in range(WALK):
            options = list(islice(self.options(now), 1 + int(r.expovariate(1 / 3))))
            if not options:
                return None
            options[-1][0].apply(self.evaluator)
            result = self._evaluated(limit)
            if result is not None and result.within_limits:
                return result
            if result is not None and result.excess < now.excess * (1 + UPHILL * r.random() ** 2):
                now, start = result, self.evaluator.save()
            else:
                self.evaluator.restore(start)
                self.evaluator.evaluate(limit)  # `options` looks at the last answer
        return None

    def _evaluated(self, limit: int) -> Outcome | None:
        """None: the decisions are no plan, or far too many ops run again."""
        try:
            return self.evaluator.evaluate(limit)
        except (TooLong, ValueError):
            return None

    def options(self, outcome: Outcome) -> Iterator[tuple[Change, int]]:
        """Changes that may lower the bytes that exceed a limit in the last answer, and by how many; the cheapest per
        byte first."""
        on_host = outcome.over <= 0
        kinds = self._on_host() if on_host else self._on_device(outcome.worst, outcome.over)
        cost = np.concatenate([costs for _, _, costs in kinds])
        ends = list(accumulate(len(keys) for _, keys, _ in kinds))
        for n in cost.argsort(kind="stable").tolist():
            if cost[n] == np.inf:
                return
            what, keys, _ = kinds[kind := bisect(ends, n)]
            key = int(keys[n - ends[kind]])  # counted from the end
            change, gain = self._change(what, key)
            yield change, int(self.place[key]) if on_host else gain

    def _on_device(self, p: Point, over: int) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """(what, keys, seconds per byte) of changes that lower the bytes at execution p."""
        ev = self.evaluator
        lo, hi, gaps = (ev.view(f"idle_{name}", "idles") for name in ("lo", "hi", "gap"))
        idle = gaps[(lo <= p) & (p < hi) & self._has_bytes[gaps]]
        gain = np.minimum(self.size[idle], over)
        fate, trust = ev.fate[idle], 1 - TRUST * self.away[idle]
        kept = fate == KEEP
        copies, runs = self._copies[idle], self.run_seconds[idle]
        held = np.where(fate == OFFLOAD, copies / 2, runs)
        held[kept | (ev.pin_from[idle] == NEVER)] = np.inf
        leaves = np.where(kept & ev.may_offload[idle] & self._has_room(idle), copies * trust, np.inf)
        recompute = np.where(kept & ev.may_recompute[idle], runs * trust, np.inf)
        kinds = [(PIN_FROM, idle, held / gain), (OFFLOAD, idle, leaves / gain), (RECOMPUTE, idle, recompute / gain)]
        return kinds + self._others(p, over)

    def _on_host(self) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """(what, keys, seconds per byte) of changes after which a tensor travels less; to keep it comes last of all,
        since it costs bytes of the device."""
        ev = self.evaluator
        gaps = np.flatnonzero((ev.fate == OFFLOAD) & (self.place > 0) & (ev.arrays["travels"][self.tensor] != 0))
        recompute = np.where(ev.may_recompute[gaps], self.run_seconds[gaps], np.inf)
        shared_with = HIDDEN * self.copy_seconds[gaps]
        return [(RECOMPUTE, gaps, recompute / self.place[gaps]), (KEEP, gaps, 1 + shared_with / self.place[gaps])]

    def _has_room(self, gaps: np.ndarray) -> np.ndarray:
        """For each gap, whether the host has room for its tensor, or has it anyway."""
        if (left := self.evaluator.host_left()) is None:
            return self._all[: len(gaps)]
        return (self.place[gaps] <= left) | (self.evaluator.arrays["travels"][self.tensor[gaps]] != 0)

    def _change(self, what: int, key: int) -> tuple[Change, int]:
        ev = self.evaluator
        if what == LEANER:
            lean = int(ev.choice[key]) - 1
            return Change("choice", key, lean), self.leaner[key][lean][0]
        if what == PIN_FROM:
            return Change("pin_from", key, int(ev.pin_from[key]) + 1), int(self.size[key])
        return Change("fate", key, what), int(self.size[key]) if ev.fate[key] == KEEP else 0

    def _others(self, p: Point, over: int) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """(what, keys, seconds per byte): the op's next leaner algorithm; and what runs again near execution p, to be
        copied or kept instead. To keep it comes last of all, since it may cost bytes elsewhere."""
        ev = self.evaluator
        order, why = ev.view("order", "executions"), ev.view("why", "executions")
        result = []
        op, now = int(order[p]), int(ev.choice[order[p]])
        if now:
            saved, seconds = self.leaner[op][now - 1]
            if saved:
                runs = sum(np.count_nonzero(order == part) for part in self.together.get(op, (op,)))
                cost = seconds * runs / min(saved, over)
                result.append((LEANER, np.array([op]), np.array([cost])))
        if why[p] >= 0 or (p > 0 and why[p - 1] >= 0):
            first = end = p
            while first > 0 and why[first - 1] >= 0:
                first -= 1
            while why[end] >= 0:
                end += 1
            gaps = np.array(sorted(set(why[first:end].tolist())))
            cost = self._copies[gaps] / np.minimum(np.maximum(self.size[gaps], 1), over)
            result.append((OFFLOAD, gaps, np.where(ev.may_offload[gaps] & self._has_room(gaps), cost, np.inf)))
            result.append((KEEP, gaps, 1 + cost))
        return result
