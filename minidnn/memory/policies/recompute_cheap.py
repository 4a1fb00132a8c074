"""Cheap ops run again, dear ones never (Chen, Xu, Zhang, Guestrin: "Training Deep Nets with Sublinear Memory Cost",
2016, section 4: "drop the results of low cost operations", as BatchNorm's, an activation's and pooling's in a net of
convolutions).

Cheap is all but convolutions and inner products, by the op's kind, so that what was fused with one of these is dear,
too. The paper says no more; what else is decided here:

*What is dropped.* What backward reads and cheap ops can bring back from what is on the device then anyway, since
backward itself has yet to read it, or from what is dropped, too. What an op reads is kept for its sake alone where that
is smaller than what the op brings back: of a DenseNet the maps, and not their concatenations; but behind a convolution
that only a pooling reads, the pooling's result.

*What is held all the same.* Without more, a chain of cheap ops, such as the sums along a ResNet's stage, would run
again for each of its readers. So what has been made, by forward or by a run, is held until it is read next wherever
that fits under a cap, what is read soonest first (Belady's rule: all reads are known). The cap is the least that the
peak can be, and a thirty-second of what dropping saves: near the least a MiB costs the most runs. Where nothing is
saved, as where the peak is a gradient's, nothing runs again.

*Which algorithms.* Workspaces at the peak would undo what dropping saves. So with "p" an op takes the fastest algorithm
whose workspace fits beside what is live wherever it runs, under the peak of "m" and an eighth of what is saved: a
workspace there buys more than a map that is held.

Nothing leaves the device, and no budget is looked at.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

import numpy as np

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, Point, in_place_sharing
from minidnn.memory.policies import probe
from minidnn.memory.policies.algorithms import Algorithms, choose, fastest_within, live_beside
from minidnn.memory.policies.recompute import Repeatable, interleave
from minidnn.program import PRODUCTS, Op, Program, Tensor

GIVEN_BACK, SPACE = 32, 8  # the parts of the saving that go into fewer runs, and with "p" into workspaces
PASSES = 2  # the first knows nothing of what runs need beside what they bring back; the second has seen it


def recompute_cheap(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    share = in_place_sharing(program)
    plan = Plan(order=program.ops, algorithm=choose(program, costs, "m"), share=share)
    curve = whole = probe.curve(program, costs, plan)
    held = _Held(Repeatable(program, share))
    if held.uses:
        least = held.without(whole)
        for _ in range(PASSES):
            cap = least.max() + max(0, whole.max() - least.max()) // GIVEN_BACK
            found = replace(plan, order=held.order(cap - least))
            lower = probe.curve(program, costs, found)
            least = held.by_place(found.order, lower) - held.bytes
        if lower.max() < whole.max():
            plan, curve = found, lower
    if algorithms != "p":
        return replace(plan, algorithm=choose(program, costs, algorithms))
    limit = int(curve.max() + (whole.max() - curve.max()) // SPACE)
    live = live_beside(plan.order, curve.tolist(), plan.algorithm)
    return replace(plan, algorithm=fastest_within(costs, plan.algorithm, live, limit))


def droppable(able: Repeatable) -> set[Tensor]:
    """What cheap ops can bring back wherever backward reads it."""
    ops, end = able.program.ops, len(able.program.ops)
    forward = ops[: able.forward]
    worth = able.droppable()
    cheap = {op for op in able.maker.values() if op.family not in PRODUCTS}
    last: dict[Tensor, Point] = {}  # reads in backward
    for p, op in enumerate(ops[able.forward :], able.forward):
        last |= dict.fromkeys(op.reads, p)
    asked = dict(last)  # the last point for which a run may have to read it
    for op in reversed(forward):
        if op in cheap:
            latest = max(asked.get(t, -1) for t in op.writes)
            asked |= {t: max(asked.get(t, -1), latest) for t in op.reads}
    changed: dict[Tensor, Point] = {}
    for p in reversed(range(end)):
        changed |= dict.fromkeys(ops[p].writes, p)
    until = dict.fromkeys(able.program.inputs, end)  # up to this point it is there, or can be made
    until |= {t: changed.get(t, end) for t in able.program.carried}
    fixed = {*until, *able.share.values()}  # not to be kept for longer: it changes, or its bytes are taken
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
    """What is dropped, and of that what is held in each gap between two uses. A step has as many places as forward has
    ops and backward has layers."""

    def __init__(self, able: Repeatable) -> None:
        self.able, self.dropped = able, droppable(able)
        self.layers = able.layers()
        self.places = able.forward + len(self.layers)
        self.number = {op: able.forward + k for k, layer in enumerate(self.layers) for op in layer}
        self.made = {t: p for p, op in enumerate(able.program.ops[: able.forward]) for t in op.tensors}  # or last read
        self.uses: dict[Tensor, list[int]] = {}  # the places of backward that read it, by order of the first
        for layer in self.layers:
            here = dict.fromkeys(t for op in layer for t in op.reads if t in self.dropped)
            for t in here:
                self.uses.setdefault(t, []).append(self.number[layer[0]])
        self.bytes = np.zeros(self.places, np.int64)  # held at each place, and not used there

    def without(self, curve: np.ndarray) -> np.ndarray:
        """Bytes live at each place, of those that are live in the program's own order, with what is dropped only where
        it is used."""
        found = self.by_place(self.able.program.ops, curve)
        for t, uses in self.uses.items():
            if t not in self.able.later:
                for a, b in zip([self.made[t], *uses], uses, strict=False):
                    found[a + 1 : b] -= t.nbytes
        return found

    def by_place(self, order: tuple[Op, ...], curve: np.ndarray) -> np.ndarray:
        """The most of a curve over an order at each place; what runs again belongs to the layer that it runs for."""
        found, place = np.zeros(self.places, np.int64), self.places - 1
        for p in reversed(range(len(order))):
            place = p if p < self.able.forward else self.number.get(order[p], place)
            found[place] = max(found[place], curve[p])
        return found

    def order(self, room: np.ndarray) -> tuple[Op, ...]:
        """The order of a step that holds what fits into the room at each place."""
        able, room = self.able, room.copy()
        self.bytes[:] = 0
        have: set[Tensor] = set()

        def hold(tensors: list[Tensor], place: int | None) -> None:
            """Of what is there at a place (None: at its last in forward), what fits until it is used next."""
            gaps = []
            for t in tensors:
                k = 0 if place is None else bisect_right(self.uses[t], place)
                if k < len(self.uses[t]) and t not in able.later:
                    gaps.append((self.uses[t][k], (self.made[t] if place is None else place) + 1, t))
            for b, a, t in sorted(gaps, key=lambda gap: gap[0]):
                if a >= b or room[a:b].min() >= t.nbytes:
                    room[a:b] -= t.nbytes
                    self.bytes[a:b] += t.nbytes
                    have.add(t)

        def again(layer: list[Op]) -> list[Op]:
            used = list(dict.fromkeys(t for op in layer for t in op.reads if t in self.dropped))
            runs = able.runs(used, self.dropped, have)
            there = [t for t in dict.fromkeys([*used, *(t for op in runs for t in op.writes)]) if t in self.uses]
            have.difference_update(there)
            hold(there, self.number[layer[0]])
            return runs

        hold(list(self.uses), None)
        return interleave(able, again)
