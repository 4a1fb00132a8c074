"""Recomputation as an order: what runs again for a layer's backward, and what that leaves on the device.

Shared by SuperNeurons, sqrt(n) and their kin, which decide what is kept and when a part of forward runs again. A unit
is what forward ops make in place over one another: of it only the last value outlives forward, so that one alone may
be kept, and to run a part of it again begins with its first op. An op that updates in place, or makes what leaves the
device at the end, never runs again; nor does one that reads what no run can bring back.

Whatever an op that runs again writes is there from then to its last use before it runs once more: the order alone says
so, and the lowering derives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field

from minidnn.memory.plan import Share
from minidnn.program import FORWARD, Op, Program, Role, Tensor

MAPS = (Role.ACTIVATION, Role.EXTRA)
TOUCHED = frozenset({Role.INPUT, Role.ACTIVATION, Role.GRADIENT, Role.EXTRA})
SIDE = 16  # a result this many times smaller than its op's largest is no reason to run the op again: it is kept


@dataclass(eq=False)
class Repeatable:
    """The forward ops of a program that may run again, under the sharing that its plan will have."""

    program: Program
    share: Share
    place: dict[Op, int] = field(init=False)
    maker: dict[Tensor, Op] = field(init=False)  # of what a run can bring back
    later: dict[Tensor, Tensor] = field(init=False)  # in a unit, from each value to the one over it
    forward: int = field(init=False)  # ops before the first of backward

    def __post_init__(self) -> None:
        ops = self.program.ops
        self.place = {op: p for p, op in enumerate(ops)}
        self.forward = next((p for p, op in enumerate(ops) if op.during not in FORWARD), len(ops))
        written = {t for op in ops[: self.forward] for t in op.writes}
        self.later = {old: new for new, old in self.share.items() if new in written and isinstance(old, Tensor)}  # type: ignore[misc]
        self.maker = {}
        ends = {*self.program.outputs, *self.program.carried}
        there = {*self.program.inputs, *self.program.carried}
        for op in ops[: self.forward]:
            able = all(t in there or t not in self.later or t in self.maker for t in op.reads)
            if able and not any(t in ends or t in op.reads or t.role not in MAPS for t in op.writes):
                self.maker |= dict.fromkeys(op.writes, op)

    def droppable(self) -> set[Tensor]:
        """What need not outlive forward, since a run brings it back and it is worth one."""
        largest = {op: max(w.nbytes for w in op.writes) for op in set(self.maker.values())}
        return {t for t, op in self.maker.items() if t in self.later or SIDE * t.nbytes > largest[op]}

    def final(self, t: Tensor) -> Tensor:
        """The last value of the unit that `t` is in."""
        while t in self.later:
            t = self.later[t]
        return t

    def layers(self) -> list[list[Op]]:
        """What follows forward, by layer: the steps of backward."""
        found: list[list[Op]] = []
        for op in self.program.ops[self.forward :]:
            if not found or found[-1][0].layer != op.layer:
                found.append([])
            found[-1].append(op)
        return found

    def runs(self, wanted: Iterable[Tensor], dropped: Set[Tensor], have: Set[Tensor]) -> list[Op]:
        """The ops that bring `wanted` back, in the program's order, where of what is dropped `have` is there."""
        stack = [t for t in wanted if t in dropped and t not in have]
        found: set[Op] = set()
        while stack:
            op = self.maker[stack.pop()]
            if op not in found:
                found.add(op)
                stack += [t for t in op.reads if t in dropped and t not in have]
        return sorted(found, key=self.place.__getitem__)

    def after(self, runs: Sequence[Op], have: set[Tensor]) -> None:
        """What is there once they have run."""
        for op in runs:
            have.update(op.writes)
            have.difference_update(self.share[t] for t in op.writes if t in self.share)  # type: ignore[misc]


def interleave(able: Repeatable, again: Callable[[list[Op]], Sequence[Op]]) -> tuple[Op, ...]:
    """The order of a step: `again` tells for each layer's backward what runs again right before the first of its ops
    that reads any of it."""
    order = list(able.program.ops[: able.forward])
    for layer in able.layers():
        runs = again(layer)
        made = {t for op in runs for t in op.writes}
        k = next((k for k, op in enumerate(layer) if made.intersection(op.reads)), 0)
        order += [*layer[:k], *runs, *layer[k:]]
    return tuple(order)


def needs(able: Repeatable, layer: Sequence[Op]) -> int:
    """Bytes that a layer's backward touches, without parameters, those that lie in place once."""
    share, found = able.share, set()
    for t in dict.fromkeys(t for op in layer for t in op.tensors if t.role in TOUCHED):
        while isinstance(old := share.get(t), Tensor):
            t = old
        found.add(t)
    return sum(t.nbytes for t in found)
