"""Recomputation from checkpoints (Chen, Xu, Zhang, Guestrin: "Training Deep Nets with Sublinear Memory Cost", 2016).

The segments are those of section 4, found as by its Algorithm 3, memory planning with a budget B. Walk through forward
and add up the bytes written. Once the sum exceeds B, end a segment, keep the tensors that cross its end, and begin
again at zero. No other tensor outlives forward. In backward a segment runs again once, for the first layer that reads
any of it, and its tensors stay until their last use. That is one more forward pass in all. On a chain of n equal layers
it takes O(sqrt n) memory.

The paper leaves B to a search around sqrt(x y), where x is the bytes kept and y those of the largest segment. Here many
B are tried at equal ratios, from the largest tensor to all of forward. The B with the least x + y is taken. Of the
points where a segment may end, one where the fewest bytes cross wins. So cuts fall between the blocks of a ResNet and
not through their branches. The last segment need not run again, since backward begins with it. Nothing leaves the
device, and the budget is ignored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, Point, in_place_sharing
from minidnn.memory.policies.algorithms import Algorithms, choose
from minidnn.memory.policies.recompute import Repeatable, interleave
from minidnn.program import Op, Program, Tensor

BUDGETS = 32  # steps between the 33 values of B that are tried


def sqrt_n(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    share = in_place_sharing(program)
    forward = Forward(Repeatable(program, share))
    low, high = max(forward.written, default=0), sum(forward.written)
    tried = [forward.cuts(low * (high / low) ** (k / BUDGETS)) for k in range(BUDGETS + 1)] if low else [[]]
    cuts = min(tried, key=forward.cost)
    return Plan(order=segmented(forward, cuts), algorithm=choose(program, costs, algorithms), share=share)


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
        found, since, total = [], 0, 0
        for p, size in enumerate(self.written, 1):
            total += size
            if total > most:
                here = [q for q in range(since + 1, p + 1) if self.crossing[q] is not None]
                if here:
                    since = min(here, key=lambda q: (self.crossing[q], -q))
                    found.append(since)
                    total = sum(self.written[since:p])
        return found

    def kept(self, cuts: Sequence[Point]) -> dict[Tensor, range]:
        """{tensor that crosses a cut: the numbers of the cuts that it crosses}"""
        found = {t: range(bisect_right(cuts, a), bisect_right(cuts, b)) for t, (a, b) in self.spans.items()}
        return {t: crossed for t, crossed in found.items() if crossed}

    def cost(self, cuts: Sequence[Point]) -> int:
        """x + y of these cuts: bytes kept, and bytes written by the largest segment."""
        ends = [0, *cuts, len(self.written)]
        return sum(t.nbytes for t in self.kept(cuts)) + max(sum(self.written[a:b]) for a, b in pairwise(ends))


def segmented(forward: Forward, cuts: Sequence[Point]) -> tuple[Op, ...]:
    """The order of a step that keeps only the tensors that cross the cuts."""
    able = forward.able
    dropped = forward.dropped - forward.kept(cuts).keys()
    segment = {t: bisect_right(cuts, able.place[able.maker[t]]) for t in dropped}
    wanted: dict[int, list[Tensor]] = defaultdict(list)
    layers = able.layers()
    for t in dict.fromkeys(t for layer in layers for op in layer for t in op.reads if t in dropped):
        wanted[segment[t]].append(t)
    have = set(wanted[len(cuts)])

    def again(layer: list[Op]) -> list[Op]:
        missing = dict.fromkeys(segment[t] for op in layer for t in op.reads if t in dropped and t not in have)
        runs = able.runs([t for k in missing for t in wanted[k]], dropped, have)
        able.after(runs, have)
        return runs

    return interleave(able, again)
