"""The least that recomputation can keep, by recursion, for reference (Chen, Xu, Zhang, Guestrin: "Training Deep Nets
with Sublinear Memory Cost", 2016, section 4's general view, with one cut at each level).

Forward is halved, by bytes written, where the fewest bytes cross. Each half is halved in its turn. This ends at parts
that write no more than one layer's backward needs anyway. When backward comes to a half, that half runs again and is
halved in its turn.

While backward is in one part, four kinds of tensors are kept. They are the program's inputs, persistent tensors,
tensors that cannot be recomputed, and tensors that cross the cuts on the path to that part.

So a net of n layers holds O(log n) cuts and runs each layer's forward O(log n) times. That is more runs than sqrt(n).
It never keeps fewer bytes than a policy that may use the host.
"""

from __future__ import annotations

from bisect import bisect_right

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, Point, in_place_sharing
from minidnn.memory.policies.papers.sqrt_n import Forward
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.policies.shared.recompute import Repeatable, interleave, needs
from minidnn.program import Op, Program, Tensor


def recompute_all(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Forward is halved recursively, for the least memory."""
    share = in_place_sharing(program)
    able = Repeatable(program, share)
    return Plan(order=halved(able), algorithm=choose(program, costs, algorithms), share=share)


def halved(able: Repeatable) -> tuple[Op, ...]:
    """The order of a step that keeps, of repeatable tensors, only those that cross the cuts around backward's place."""
    forward, dropped = Forward(able), able.droppable()
    layers = able.layers()
    parts = _Parts(forward, max((needs(able, layer) for layer in layers), default=0))
    born = {t: able.place[able.maker[t]] for t in dropped}
    wanted: dict[Point, list[Tensor]] = {}  # {start of a smallest part: tensors of it that backward reads}
    for t in dict.fromkeys(t for layer in layers for op in layer for t in op.reads if t in dropped):
        wanted.setdefault(parts.smallest(born[t]), []).append(t)
    # {tensor: the last layer of backward that reads it}
    last = {t: k for k, layer in enumerate(layers) for op in layer for t in op.reads}
    needed = dict(last)  # or what can be made of it: where ops run in parts, backward may be past that
    for op in reversed(able.program.ops[: able.forward]):
        latest = max((needed.get(t, -1) for t in op.writes if t in dropped), default=-1)
        needed |= {t: max(latest, needed.get(t, -1)) for t in op.reads}
    crossing: dict[Point, set[Tensor]] = {p: set() for p in parts.starts}
    for t, crossed in forward.across_cuts(parts.starts).items():
        for k in crossed:
            crossing[parts.starts[k]].add(t)

    def to_keep(place: Point, k: int = 0) -> set[Tensor]:
        """Tensors to keep while backward is at `place`.

        These are all that cross a cut on the path to it and are needed by backward layer k or a later one, and those of
        its smallest part that such a layer reads. Others are left out: recomputing them could use a weight that was
        updated meanwhile.
        """
        kept = {t for t in wanted.get(parts.smallest(place), ()) if last[t] >= k}
        return kept.union(t for p in parts.path(place) for t in crossing[p] if needed[t] >= k)

    have = to_keep(parts.end - 1)  # forward has just made these
    entered = set(have)

    number = {layer[0]: k for k, layer in enumerate(layers)}

    def again(layer: list[Op]) -> list[Op]:
        runs: list[Op] = []
        for t in dict.fromkeys(t for op in layer for t in op.reads if t in dropped):
            if t not in have:
                kept = to_keep(born[t], number[layer[0]])
                entered.update(wanted.get(parts.smallest(born[t]), ()))
                more = able.runs(sorted(kept, key=born.__getitem__), dropped, have)
                able.after(more, have)
                have.intersection_update(kept | entered)
                runs += more
        return runs

    return interleave(able, again)


class _Parts:
    """Forward, halved and halved again. `starts`: the points where the smallest parts begin."""

    def __init__(self, forward: Forward, enough: int) -> None:
        self.sums = [0]
        for size in forward.written:
            self.sums.append(self.sums[-1] + size)
        self.cut: dict[tuple[Point, Point], Point | None] = {}
        self.end = len(forward.written)
        stack = [(0, self.end)]
        while stack:
            a, b = stack.pop()
            m = self.cut[a, b] = self._middle(forward, a, b) if self.sums[b] - self.sums[a] > enough else None
            if m is not None:
                stack += [(a, m), (m, b)]
        self.starts = sorted({0, *(m for m in self.cut.values() if m is not None)})

    def _middle(self, forward: Forward, a: Point, b: Point) -> Point | None:
        """The point with the fewest crossing bytes, between a quarter and three quarters of the bytes written.

        If there is none, any point of the part will do. None: the part cannot be cut.
        """
        whole = self.sums[b] - self.sums[a]
        low, high = (bisect_right(self.sums, self.sums[a] + whole * part, a, b) for part in (0.25, 0.75))
        for span in (range(max(low, a + 1), min(high + 1, b)), range(a + 1, b)):
            result = [(bytes_, abs(2 * p - a - b), p) for p in span if (bytes_ := forward.crossing[p]) is not None]
            if result:
                return min(result)[2]
        return None

    def smallest(self, place: Point) -> Point:
        """The start of the smallest part that contains `place`."""
        return self.starts[bisect_right(self.starts, place) - 1]

    def path(self, place: Point) -> list[Point]:
        """The cuts before `place` that halving made on the path to it."""
        a, b, result = 0, self.end, []
        while (m := self.cut[a, b]) is not None:
            if place < m:
                b = m
            else:
                result.append(m)
                a = m
        return result
