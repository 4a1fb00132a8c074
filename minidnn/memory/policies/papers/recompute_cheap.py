"""Recomputation of cheap ops alone (Chen, Xu, Zhang, Guestrin: "Training Deep Nets with Sublinear Memory Cost", 2016,
section 4: "drop the results of low cost operations"). The paper's examples are BatchNorm, activations and pooling in a
net of convolutions.

All ops are cheap except convolutions and inner products. The op's kind decides, so an op that is fused with one of
these is dear, too. The paper says no more; the rest is decided here:

*Dropped tensors.* A tensor is dropped if backward reads it and cheap ops can rebuild it. They may read tensors still on
the device then (backward has yet to read them), or other dropped tensors. If the tensors that an op reads are smaller
than those that it rebuilds, they are kept just for this op. So of a DenseNet the maps are kept and not their
concatenations. But if only a pooling reads a convolution's result, the pooling's result is kept.

*Tensors held all the same.* Without this, a chain of cheap ops, such as the sums along a ResNet's stage, would run
again for each of its readers. So a tensor that forward or a re-run has made is held until its next read, if it fits
under a cap. The tensor with the next read goes first (Belady's rule, since all reads are known). The cap is the least
possible peak plus 1/32 of the bytes that dropping saves: near the least peak, a MiB costs the most runs. If nothing is
saved, for example if a gradient makes the peak, nothing runs again.

Nothing leaves the device.

That plan ignores the budget. If a user names one, the budget is the cap, and the tensors with the most seconds of runs
per byte are held first (`recompute_cheap_within`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, Point, in_place_sharing
from minidnn.memory.policies.shared import probe
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.policies.shared.recompute import Places, Repeatable, interleave
from minidnn.memory.policies.shared.stopping import Ordering, stopped
from minidnn.program import PRODUCTS, Algorithm, Op, Program, Tensor

GIVEN_BACK = 32  # 1/32 of the saving goes into fewer runs
PASSES = 2  # the first pass does not know the bytes that runs need besides their results; the second does


def recompute_cheap(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """The results of cheap ops are recomputed."""
    return replace(_Leanest(program, costs).plan, algorithm=choose(program, costs, algorithms))


def recompute_cheap_within(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """The quickest plan found that keeps the budget; the full plan if even that does not."""
    leanest = _Leanest(program, costs)
    algorithm = choose(program, costs, algorithms)
    full = replace(leanest.plan, algorithm=algorithm)
    if not probe.fits(program, costs, full, budget):
        return full
    start = replace(full, order=program.ops)
    return stopped(program, costs, budget, full, start, leanest.ordering(algorithm))


class _Leanest:
    """The full plan, which ignores the budget, with the leanest algorithms."""

    def __init__(self, program: Program, costs: Costs) -> None:
        share = in_place_sharing(program)
        plan = Plan(order=program.ops, algorithm=choose(program, costs, "m"), share=share)
        self.program, self.costs, self.held = program, costs, _Held(Repeatable(program, share))
        whole = probe.curve(program, costs, plan)
        self.plan = self.found = plan
        if self.held.uses:
            least = self.held.without(whole)
            for _ in range(PASSES):
                cap = least.max() + max(0, whole.max() - least.max()) // GIVEN_BACK
                self.found = replace(plan, order=self.held.order(cap - least))
                lower = probe.curve(program, costs, self.found)
                least = self.held.places.most(self.found.order, lower) - self.held.bytes
            if lower.max() < whole.max():
                self.plan = self.found
        self.bytes = self.held.bytes.copy()

    def ordering(self, algorithm: Mapping[Op, Algorithm]) -> Ordering:
        """For a room in live bytes, the order that holds the dearest tensors that fit, with these algorithms."""
        curve = probe.curve(self.program, self.costs, replace(self.found, algorithm=algorithm))
        # Bytes live at each place besides those held; the bytes that runs need for themselves are among them.
        least = self.held.places.most(self.found.order, curve) - self.bytes
        dear = self.held.seconds_of_a_byte(self.costs, algorithm)
        return lambda room: self.held.order(room - least, dear)


def droppable(able: Repeatable) -> set[Tensor]:
    """Tensors that cheap ops can bring back wherever backward reads them."""
    ops, end = able.program.ops, len(able.program.ops)
    forward = ops[: able.forward]
    worth = able.droppable()
    cheap = {op for op in able.maker.values() if op.family not in PRODUCTS}
    last: dict[Tensor, Point] = {}  # {tensor: its last read in backward}
    for p, op in enumerate(ops[able.forward :], able.forward):
        last |= dict.fromkeys(op.reads, p)
    asked = dict(last)  # {tensor: the last point for which a run may have to read it}
    for op in reversed(forward):
        if op in cheap:
            latest = max(asked.get(t, -1) for t in op.writes)
            asked |= {t: max(asked.get(t, -1), latest) for t in op.reads}
    changed: dict[Tensor, Point] = {}
    for p in reversed(range(end)):
        changed |= dict.fromkeys(ops[p].writes, p)
    # {tensor: the point up to which it is on the device or can be rebuilt}
    until = dict.fromkeys(able.program.inputs, end)
    until |= {t: changed.get(t, end) for t in able.program.lasting}
    # tensors that cannot be kept longer: they change, or another tensor takes their bytes
    fixed = {*until, *able.share.values()}
    dropped: set[Tensor] = set()
    for op in forward:
        back = [t for t in op.writes if t in worth] if op in cheap else []
        point = max((asked.get(t, -1) for t in back), default=-1)
        short = [t for t in dict.fromkeys(op.reads) if until[t] < point]
        if sum(t.nbytes for t in short) < sum(t.nbytes for t in back) and fixed.isdisjoint(short):
            until |= dict.fromkeys(short, point)
        there = min((until[t] for t in op.reads), default=end)
        for t in op.writes:
            if t in back and there >= asked.get(t, -1):
                dropped.add(t)
                fixed.add(t)
                until[t] = there
            else:
                until[t] = -1 if t in able.later else last.get(t, -1)
    return dropped


class _Held:
    """The dropped tensors, and the gaps between two uses in which each is held all the same."""

    def __init__(self, able: Repeatable) -> None:
        self.able, self.dropped = able, droppable(able)
        self.places = Places(able, self.dropped)
        self.made, self.uses = self.places.made, self.places.uses
        self.bytes = np.zeros(self.places.count, np.int64)  # bytes held at each place but not used there

    def without(self, curve: np.ndarray) -> np.ndarray:
        """Bytes live at each place, if dropped tensors are on the device only where they are used.

        `curve`: bytes live at each execution of the program's own order.
        """
        result = self.places.most(self.able.program.ops, curve)
        for t, uses in self.uses.items():
            if t not in self.able.later:
                for a, b in zip([self.made[t], *uses], uses, strict=False):
                    result[a + 1 : b] -= t.nbytes
        return result

    def seconds_of_a_byte(self, costs: Costs, algorithm: Mapping[Op, Algorithm]) -> dict[Tensor, float]:
        """{tensor: seconds of the runs that bring it alone back, by its bytes}"""
        result = {}
        for t in self.uses:
            runs = self.able.runs([t], self.dropped, self.uses.keys() - {t})
            result[t] = sum(costs.seconds(op, algorithm[op]) for op in runs) / max(t.nbytes, 1)
        return result

    def order(self, room: np.ndarray, dear: Mapping[Tensor, float] = MappingProxyType({})) -> tuple[Op, ...]:
        """The order of a step that holds the tensors that fit into `room`, in bytes at each place.

        The dearest are held first; of equally dear ones, the one with the next read.
        """
        able, room = self.able, room.copy()
        self.bytes[:] = 0
        have: set[Tensor] = set()

        def hold(tensors: list[Tensor], place: int | None) -> None:
            """Hold those of the tensors at `place` that fit until their next use. None: their last place in forward."""
            gaps = []
            for t in tensors:
                k = 0 if place is None else bisect_right(self.uses[t], place)
                if k < len(self.uses[t]) and t not in able.later:
                    gaps.append((self.uses[t][k], (self.made[t] if place is None else place) + 1, t))
            for b, a, t in sorted(gaps, key=lambda gap: (-dear.get(gap[2], 0.0), gap[0])):
                if a >= b or room[a:b].min() >= t.nbytes:
                    room[a:b] -= t.nbytes
                    self.bytes[a:b] += t.nbytes
                    have.add(t)

        def again(layer: list[Op]) -> list[Op]:
            """The ops to run again for this layer's backward. Holds their results where they fit."""
            used = list(dict.fromkeys(t for op in layer for t in op.reads if t in self.dropped))
            runs = able.runs(used, self.dropped, have)
            there = [t for t in dict.fromkeys([*used, *(t for op in runs for t in op.writes)]) if t in self.uses]
            have.difference_update(there)
            hold(there, self.places.number[layer[0]])
            return runs

        hold(list(self.uses), None)
        return interleave(able, again)
