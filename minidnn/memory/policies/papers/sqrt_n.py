"""Recomputation from checkpoints (Chen, Xu, Zhang, Guestrin: "Training Deep Nets with Sublinear Memory Cost", 2016).

The segments are those of section 4, found as by its Algorithm 3, memory planning with a budget B. Walk through forward
and add up the bytes written. Once the sum exceeds B, end a segment, keep the tensors that cross its end, and begin
again at zero. No other tensor outlives forward. In backward a segment runs again once, for the first layer that reads
any of it, and its tensors stay until their last use. That is one more forward pass in all. On a chain of n equal layers
it takes O(sqrt n) memory.

The paper leaves B to a search around sqrt(x y), where x is the bytes kept and y those of the largest segment. Here many
B are tried at equal ratios, from the largest tensor to all of forward. The B with the least x + y is taken. A segment
ends at the possible point where the fewest bytes cross. So cuts fall between the blocks of a ResNet and not through
their branches. The last segment need not run again, since backward begins with it. Nothing leaves the device.

That plan ignores the budget. If a user names one, only as many of its segments run again as the budget needs, those
with the fewest seconds per byte saved first (`sqrt_n_within`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import pairwise

import numpy as np

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, Point, in_place_sharing
from minidnn.memory.policies.shared import probe
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.policies.shared.recompute import Places, Repeatable, by_segments, read_in_backward
from minidnn.memory.policies.shared.stopping import stopped
from minidnn.program import Op, Program, Tensor

BUDGETS = 32  # steps between the 33 values of B that are tried


def sqrt_n(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Only segment ends are kept; the rest is recomputed."""
    forward = Forward(Repeatable(program, in_place_sharing(program)))
    return _full(forward, _cuts(forward), costs, algorithms)


def sqrt_n_within(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """The plan with as few segments that run again as keep the budget; the full plan if even that does not."""
    forward = Forward(Repeatable(program, in_place_sharing(program)))
    cuts = _cuts(forward)
    full = _full(forward, cuts, costs, algorithms)
    if not probe.fits(program, costs, full, budget):
        return full
    start = replace(full, order=program.ops)
    segments = _Segments(forward, cuts, costs, full)

    def order(room: int) -> tuple[Op, ...]:
        return segmented(forward, cuts, segments.within(room))

    return stopped(program, costs, budget, full, start, order)


def _full(forward: Forward, cuts: Sequence[Point], costs: Costs, algorithms: Algorithms) -> Plan:
    """The paper's plan: all segments but the last run again."""
    program, share = forward.able.program, forward.able.share
    order = segmented(forward, cuts)
    return Plan(order=order, algorithm=choose(program, costs, algorithms), share=share)


def _cuts(forward: Forward) -> list[Point]:
    """The cuts with the least x + y, of those under the values of B that are tried."""
    low, high = max(forward.written, default=0), sum(forward.written)
    tried = [forward.cuts(low * (high / low) ** (k / BUDGETS)) for k in range(BUDGETS + 1)] if low else [[]]
    return min(tried, key=forward.cost)


class Forward:
    """Bytes that forward writes at each of its points, and bytes that cross each point."""

    def __init__(self, able: Repeatable) -> None:
        self.able, self.dropped = able, able.droppable()
        ops = able.program.ops[: able.forward]
        born: dict[Tensor, Point] = {}
        last: dict[Tensor, Point] = {}
        for p, op in enumerate(ops):
            born |= dict.fromkeys((t for t in op.writes if t in self.dropped), p)
            last |= dict.fromkeys((t for t in op.reads if t in self.dropped), p)
        self.written = [sum(t.nbytes for t in op.writes if t in self.dropped and t not in able.share) for op in ops]
        self.crossing: list[int | None] = [0] * (len(ops) + 1)  # bytes; None: a cut would split a unit of in-place ops
        change: dict[Point, int] = defaultdict(int)
        through: dict[Point, int] = defaultdict(int)
        self.spans = {t: (born[t], p) for t, p in last.items()}
        for t, (a, b) in self.spans.items():
            for table, size in ((change, t.nbytes), (through, int(t in able.later))):
                table[a + 1] += size
                table[b + 1] -= size
        live = cut = 0
        for p in range(len(ops) + 1):
            live, cut = live + change[p], cut + through[p]
            self.crossing[p] = None if cut else live

    def cuts(self, most: float) -> list[Point]:
        """The points between segments.

        Wherever more than `most` bytes were written since the last cut, there is a new cut where the fewest bytes
        cross.
        """
        result, since, total = [], 0, 0
        for p, size in enumerate(self.written, 1):
            total += size
            if total > most:
                here = [q for q in range(since + 1, p + 1) if self.crossing[q] is not None]
                if here:
                    since = min(here, key=lambda q: (self.crossing[q], -q))
                    result.append(since)
                    total = sum(self.written[since:p])
        return result

    def across_cuts(self, cuts: Sequence[Point]) -> dict[Tensor, range]:
        """{tensor that crosses a cut: the numbers of the cuts that it crosses}"""
        result = {t: range(bisect_right(cuts, a), bisect_right(cuts, b)) for t, (a, b) in self.spans.items()}
        return {t: crossed for t, crossed in result.items() if crossed}

    def cost(self, cuts: Sequence[Point]) -> int:
        """x + y of these cuts: bytes kept, and bytes written by the largest segment."""
        ends = [0, *cuts, len(self.written)]
        return sum(t.nbytes for t in self.across_cuts(cuts)) + max(sum(self.written[a:b]) for a, b in pairwise(ends))


def reads_by_segment(forward: Forward, cuts: Sequence[Point]) -> dict[int, list[Tensor]]:
    """{segment: its tensors that backward reads and that cross no cut}"""
    able = forward.able
    dropped = forward.dropped - forward.across_cuts(cuts).keys()
    result: dict[int, list[Tensor]] = defaultdict(list)
    for t in read_in_backward(able.program, dropped):
        result[bisect_right(cuts, able.place[able.maker[t]])].append(t)
    return result


def segmented(forward: Forward, cuts: Sequence[Point], segments: Set[int] | None = None) -> tuple[Op, ...]:
    """The order of a step that keeps only the tensors that cross the cuts, and those of segments not in `segments`.

    segments: those that run again; None: all but the last
    """
    segment = {t: k for k, tensors in reads_by_segment(forward, cuts).items() for t in tensors}
    dropped = forward.dropped - forward.across_cuts(cuts).keys()
    have = {t for t, k in segment.items() if (k == len(cuts) if segments is None else k not in segments)}
    return by_segments(forward.able, segment, dropped, have)


class _Segments:
    """The seconds of each segment that could run again, and the bytes that this saves at each place of a step."""

    def __init__(self, forward: Forward, cuts: Sequence[Point], costs: Costs, full: Plan) -> None:
        """`full`: the plan in which all segments but the last run again."""
        able, program = forward.able, forward.able.program
        of = reads_by_segment(forward, cuts)
        dropped = forward.dropped - forward.across_cuts(cuts).keys()
        places = Places(able, dropped)
        own = replace(full, order=program.ops)
        self.whole = places.most(program.ops, probe.curve(program, costs, own))
        self.seconds: dict[int, float] = {}
        self.saves: dict[int, np.ndarray] = {}
        runs_at: dict[int, int] = {}  # {segment: the place where it runs again}
        for k in range(len(cuts)):
            if of[k]:
                runs = able.runs(of[k], dropped, set())
                self.seconds[k] = sum(costs.seconds(op, full.algorithm[op]) for op in runs)
                runs_at[k] = min(places.uses[t][0] for t in of[k])
                self.saves[k] = np.zeros(places.count, np.int64)
                for t in of[k]:
                    if t not in able.later:
                        self.saves[k][places.made[t] + 1 : runs_at[k]] += t.nbytes
        # Bytes that the runs take themselves: what the full plan takes there beyond the sum.
        beyond = places.most(full.order, probe.curve(program, costs, full)) - self.whole + sum(self.saves.values())
        for k, place in runs_at.items():
            self.saves[k][place] -= max(0, beyond[place])

    def within(self, room: int) -> set[int]:
        """Segments that, if they run again, keep the live bytes within `room`; all of them if no choice seems to.

        Wherever the peak is, the segment with the fewest seconds per byte saved there is taken. Those that turn out not
        to be needed are left out again, the dearest first.
        """
        curve, chosen = self.whole.copy(), set()
        while curve[p := int(curve.argmax())] > room:
            left = [k for k in self.seconds if k not in chosen and self.saves[k][p] > 0]
            if not left:
                return set(self.seconds)
            k = min(left, key=lambda k: self.seconds[k] / self.saves[k][p])
            chosen.add(k)
            curve -= self.saves[k]
        for k in sorted(chosen, key=lambda k: -self.seconds[k]):
            if (curve + self.saves[k]).max() <= room:
                chosen.remove(k)
                curve += self.saves[k]
        return chosen
