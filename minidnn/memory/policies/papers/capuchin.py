"""Capuchin-style swapping and recomputation, after Peng, Shi, Dai, Jin, Ma, Xiong, Yang, Qian ("Capuchin: Tensor-based
GPU Memory Management for Deep Learning", ASPLOS 2020).

We had the abstract and summaries of the paper, not its text, hence "-style". Known from these: one iteration is
watched, in which tensors have accesses at times. The last access before a tensor leaves is its *evicted-access*, the
next one its *back-access*. The tensor comes back ahead of need, at an *in-trigger*. Swapping is the first choice as
long as an in-trigger hides the copy. Then the overheads of a swap and of a recomputation are compared. Swaps are ranked
by Free Time, recomputations by Memory Saving Per Second (MSPS). If a copy back comes late, feedback moves its
in-trigger ahead. Recomputation is on demand. Here:

  1. The watched iteration is the program's own order with the seconds of its costs.
  2. Candidates are tensors that idle between forward and backward while the live bytes exceed the limit.
  3. Free Time = (back-access - seconds of the copy back) - (evicted-access + seconds of the copy out). The tensors with
     most of it join first. Copies of one direction follow one another, so after some tensors the link is full.
  4. From there on, the next swap and the recomputation with the highest MSPS are compared by seconds per byte. A swap
     then costs both of its copies. A recomputation costs the runs that its sources do not spare; with each tensor that
     is dropped, those of others may rise.
  5. No more tensors are chosen than the limit needs.
  6. The points of the copies are those of AccUDNN's model (memory/policies/shared/swap_model.py). A copy back begins as
     late as it may without being waited for, all on one link. That is where the paper's feedback would end. A copy out
     is awaited only where its bytes are needed, as in the paper.

A recomputed tensor stays until its last use. So do other chosen tensors that are recomputed on the way and needed soon
(the paper's collective recomputation).

Live bytes decide the choice. If the placed arena exceeds the budget, the limit falls by the excess, and the windows of
the copies become longer. The leanest plan, of all candidates, counts if no choice keeps the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop, heapreplace

from minidnn.costs import Costs
from minidnn.memory.plan import Plan
from minidnn.memory.policies.shared import probe
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.policies.shared.orders import in_place, last_uses, lineage, makers, on_demand
from minidnn.memory.policies.shared.swap_model import Candidate, Model
from minidnn.program import Program, Tensor

ATTEMPTS = 6  # limits tried: each is lower by the bytes that the last placement had too many
SLACKS = (8, 2, 0)  # most ops that a tensor stays beyond its last use, or comes back before its first
PARTS = 4  # of the hidden swaps: so many numbers of them are tried, and none
STEPS = 8  # numbers of choices that are tried before the smallest is searched for
SAME = 1 + 1e-6  # times that differ by less count as equal
FINE = 128  # a limit goes down by 1/128 of the budget at least

Choice = tuple[Candidate, bool]  # a tensor, and whether it is made again


def capuchin(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Swaps by free time, then cheaper recomputation.

    If not even the leanest plan keeps the budget, that is returned, and the refusal names it.
    """
    maker = _Maker(program, costs, algorithms)
    if maker.model.peak <= budget and probe.fits(program, costs, maker.model.plan, budget):
        return maker.model.plan
    fitting: list[tuple[float, int, Plan]] = []
    limit = budget
    for number in range(ATTEMPTS):
        if (result := maker.within(limit)) is None:
            break
        model, plan = result
        if (over := probe.over(program, costs, plan, budget)) <= 0:
            fitting.append((model.predict(plan.offloads).seconds, number, plan))
            break
        for slack in () if fitting else SLACKS:
            tight = replace(plan, offloads=tuple(model.tightened(plan.offloads, slack)))
            if probe.fits(program, costs, tight, budget):
                fitting.append((model.predict(tight.offloads).seconds, number, tight))
                break
        limit -= max(over, budget // FINE)
    return min(fitting)[2] if fitting else maker.leanest()


class _Maker:
    """Ranks the choices for one program, and makes plans of them."""

    def __init__(self, program: Program, costs: Costs, algorithms: Algorithms) -> None:
        self.program, self.costs = program, costs
        self.algorithm = choose(program, costs, algorithms)
        self.make = makers(program, costs)
        self.last = last_uses(program.ops)
        own = Plan(program.ops, algorithm=self.algorithm, share=in_place(program, program.ops))
        self.model = Model(program, costs, self.algorithm, own)
        self.parts: tuple[int, ...] = tuple(range(PARTS, -1, -1))
        self.still = self.model.predict(()).seconds * SAME  # a step with all copies hidden

    def within(self, limit: int) -> tuple[Model, Plan] | None:
        """The plan with the shortest predicted step whose live bytes keep the limit, with its model; None if none does.

        Near a limit copies hide less than they would with room. So fewer swaps than all hidden ones are tried, too; for
        the limits that follow, only the part of them that was best for the first.
        """
        able, hidden = self._able(limit)
        best: tuple[float, int, tuple[Model, Plan]] | None = None
        for part in self.parts:
            result = self._fewest(self._ranked(able, hidden * part // PARTS), limit)
            if result is None:
                continue
            seconds = result[0].predict(result[1].offloads).seconds
            if best is None or seconds < best[0]:
                best = seconds, part, result
            if seconds <= self.still:
                break
        if best is None:
            return None
        self.parts = (best[1],)
        return best[2]

    def _fewest(self, choices: Sequence[Choice], limit: int) -> tuple[Model, Plan] | None:
        """The plan of about the fewest choices that keep the limit; None if none was found.

        More choices need not take fewer bytes, since runs take some themselves.
        """
        low, result = 0, None
        for high in sorted({len(choices) * step // STEPS for step in range(STEPS + 1)}):
            if (result := self._planned(choices[:high], limit)) is not None:
                break
            low = high + 1
        while result is not None and low < high:
            middle = (low + high) // 2
            if (tried := self._planned(choices[:middle], limit)) is None:
                low = middle + 1
            else:
                high, result = middle, tried
        return result

    def leanest(self) -> Plan:
        """The plan with the lowest arena of two: all candidates swapped, or as they are ranked; they leave at once, and
        come back at the last moment."""
        result = []
        for choices in ([(c, False) for c in self.model.candidates], self._ranked(*self._able(0))):
            model = self._model(choices)
            swapped = {c.tensor for c, again in choices if not again}
            offloads = tuple(offload for offload in model.narrowest() if offload.tensor in swapped)
            result.append(replace(model.plan, offloads=offloads))
        return min(result, key=lambda plan: probe.arena(self.program, self.costs, plan))

    # ---- ranking

    def free_time(self, c: Candidate) -> float:
        """Seconds between the end of the copy out and the start of the copy back, if both run at once."""
        clock = self.model.clock
        return float(clock[c.use] - c.returning - clock[c.last] - c.leaving)

    def _able(self, limit: int) -> tuple[list[Candidate], int]:
        """The candidates that idle while the live bytes exceed the limit, by falling free time; and how many of the
        first have copies that hide."""
        over = (self.model.live > limit).cumsum()
        able = [c for c in self.model.candidates if over[c.use - 1] > (over[c.last - 1] if c.last else 0)]
        able.sort(key=lambda c: -self.free_time(c))
        return able, self._hidden(able)

    def _ranked(self, able: Sequence[Candidate], hidden: int) -> list[Choice]:
        """The choices, the first to be made first: so many hidden swaps, then swaps and recomputations by their
        overheads."""
        left = dict.fromkeys(able[hidden:])
        choices = [(c, False) for c in able[:hidden]]
        dropped: set[Tensor] = set()
        heap = [(self._seconds(c, dropped) / c.nbytes, n, c) for n, c in enumerate(left) if c.tensor in self.make]
        heapify(heap)
        for swap in able[hidden:]:
            copies = (swap.leaving + swap.returning) / swap.nbytes
            while heap and swap in left:
                cost, n, c = heap[0]
                if c not in left:
                    heappop(heap)
                    continue
                if (now := self._seconds(c, dropped) / c.nbytes) > cost:
                    heapreplace(heap, (now, n, c))  # tensors dropped since are missing among its sources
                    continue
                if copies <= cost:
                    break
                heappop(heap)
                del left[c]
                dropped.add(c.tensor)
                choices.append((c, True))
            if swap in left:
                del left[swap]
                choices.append((swap, False))
        return choices

    def _hidden(self, able: Sequence[Candidate]) -> int:
        """How many of the first candidates have copies that all hide, with one link for each direction."""
        low, high = 0, len(able)
        endless = int(self.model.peak) + sum(c.nbytes for c in able)
        while low < high:
            middle = (low + high + 1) // 2
            offloads = self.model.windows(able[:middle], endless)
            if offloads is not None and len(offloads) == middle and self.free_time(able[middle - 1]) >= 0:
                low = middle
            else:
                high = middle - 1
        return low

    def _seconds(self, c: Candidate, dropped: set[Tensor]) -> float:
        """Seconds of the runs that bring a tensor back for its back-access. Its sources are tensors that are used later
        still, and not dropped."""
        runs = lineage([c.tensor], self.make, lambda t: self.last[t] < c.use or t in dropped or t == c.tensor)
        return sum(self.costs.seconds(op, self.algorithm[op]) for op in runs)

    # ---- plans

    def _model(self, choices: Sequence[Choice]) -> Model:
        """The step in which the chosen tensors are recomputed."""
        again = {c.tensor for c, again in choices if again}
        if not again:
            return self.model
        order = on_demand(self.program, self.make, again)
        plan = Plan(order, algorithm=self.algorithm, share=in_place(self.program, order))
        return Model(self.program, self.costs, self.algorithm, plan)

    def _planned(self, choices: Sequence[Choice], limit: int) -> tuple[Model, Plan] | None:
        model = self._model(choices)
        swapped = {c.tensor for c, again in choices if not again}
        offloads = model.windows([c for c in model.candidates if c.tensor in swapped], limit)
        return None if offloads is None else (model, replace(model.plan, offloads=tuple(offloads)))
