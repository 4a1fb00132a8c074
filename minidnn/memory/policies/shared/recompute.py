"""Recomputation as an order of ops: which ones run again for a layer's backward, and which tensors that brings back.

SuperNeurons, sqrt(n) and the other recomputing policies share this module. They decide which tensors are kept, and when
a part of forward runs again. A *unit* is a chain of tensors that forward ops write over one another in place. Only its
last value survives forward, so only that can be kept; recomputing any of it starts at its first op.

Some ops never run again: those that update a tensor in place, those that write an output or a persistent tensor, those
whose reads were overwritten and cannot be recomputed, and those that read what a later op changes, or write it.

A recomputed tensor holds bytes from its run to its last use before its op runs once more. The order alone says so, and
the lowering derives it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from minidnn.memory.plan import Point, Share
from minidnn.program import Op, Pass, Program, Role, Tensor

MAPS = (Role.ACTIVATION, Role.EXTRA)
TOUCHED = frozenset({Role.INPUT, Role.ACTIVATION, Role.GRADIENT, Role.EXTRA})
# A tensor this many times smaller than the largest result of its op is kept: it is not worth a run. If all of the op's
# results are extras, as a BatchNorm's moments are, the tensors that it reads count, too.
SIDE = 16


@dataclass(eq=False)
class Repeatable:
    """The forward ops of a program that may run again, under the sharing that its plan will have."""

    program: Program
    share: Share
    place: dict[Op, int] = field(init=False)
    maker: dict[Tensor, Op] = field(init=False)  # {tensor that a run can bring back: its op}
    later: dict[Tensor, Tensor] = field(init=False)  # in a unit, {value: the value that overwrites it}
    forward: int = field(init=False)  # number of ops before backward

    def __post_init__(self) -> None:
        ops = self.program.ops
        self.place = {op: p for p, op in enumerate(ops)}
        self.forward = self.program.forward
        written = {t for op in ops[: self.forward] for t in op.writes}
        self.later = {old: new for new, old in self.share.items() if new in written and isinstance(old, Tensor)}  # type: ignore[misc]
        self.maker = {}
        ends = {*self.program.outputs, *self.program.persistent}
        there = {*self.program.inputs, *self.program.persistent}
        changed = changes(self.program)
        for p, op in enumerate(ops[: self.forward]):
            able = all(t in there or t not in self.later or t in self.maker for t in op.reads)
            able = able and not any(changed.get(t, -1) > p for t in op.tensors)
            if able and not op.on_net and not any(t in ends or t in op.reads or t.role not in MAPS for t in op.writes):
                self.maker |= dict.fromkeys(op.writes, op)

    def droppable(self) -> set[Tensor]:
        """Tensors that need not outlive forward: a run can bring them back, and they are worth a run."""
        largest = {op: max(t.nbytes for t in self._weighed(op)) for op in set(self.maker.values())}
        return {t for t, op in self.maker.items() if t in self.later or SIDE * t.nbytes > largest[op]}

    def _weighed(self, op: Op) -> tuple[Tensor, ...]:
        """The tensors of an op with which its results are compared (SIDE). Moments that are merged from those of parts
        are compared with what these were made of."""
        if any(t.role is not Role.EXTRA for t in op.writes):
            return op.writes
        parts = (self.maker[t] for t in op.reads if t.role is Role.EXTRA and t in self.maker)
        return *op.tensors, *(t for one in parts for t in one.tensors)

    def final(self, t: Tensor) -> Tensor:
        """The last value of the unit that `t` is in."""
        while t in self.later:
            t = self.later[t]
        return t

    def layers(self) -> list[list[Op]]:
        """The ops after forward, one list for each layer: the steps of backward."""
        result: list[list[Op]] = []
        for op in self.program.ops[self.forward :]:
            if not result or result[-1][0].layer != op.layer:
                result.append([])
            result[-1].append(op)
        return result

    def runs(self, tensors: Iterable[Tensor], dropped: Set[Tensor], have: Set[Tensor]) -> list[Op]:
        """The ops that bring `wanted` back, in the program's order.

        dropped: tensors that do not outlive forward
        have:    those of them that are on the device
        """
        stack = [t for t in tensors if t in dropped and t not in have]
        result: set[Op] = set()
        while stack:
            op = self.maker[stack.pop()]
            if op not in result:
                result.add(op)
                stack += [t for t in op.reads if t in dropped and t not in have]
        return sorted(result, key=self.place.__getitem__)

    def after(self, runs: Sequence[Op], have: set[Tensor]) -> None:
        """Update `have`, the tensors on the device, for these runs."""
        for op in runs:
            have.update(op.writes)
            have.difference_update(self.share[t] for t in op.writes if t in self.share)  # type: ignore[misc]


def changes(program: Program) -> dict[Tensor, Point]:
    """{tensor: the last op that changes its value, be it in place or anew}. Updates do not count: each comes behind all
    that reads what it changes, and behind the runs again for these."""
    result: dict[Tensor, Point] = {}
    known = {*program.inputs, *program.lasting}
    for p, op in enumerate(program.ops):
        if op.during is not Pass.UPDATE:
            result |= dict.fromkeys((t for t in op.writes if t in known), p)
        known.update(op.writes)
    return result


class Places:
    """The places of a step: one for each op of forward, and one for each layer of backward with what runs again for it.

    made: {tensor: the last op of forward that makes or reads it}
    uses: {tensor of `dropped`: the places of backward that read it}, in order of the first
    """

    def __init__(self, able: Repeatable, dropped: Set[Tensor]) -> None:
        self.able, self.layers = able, able.layers()
        self.count = able.forward + len(self.layers)
        self.number = {op: able.forward + k for k, layer in enumerate(self.layers) for op in layer}
        self.made = {t: p for p, op in enumerate(able.program.ops[: able.forward]) for t in op.tensors}
        self.uses: dict[Tensor, list[int]] = {}
        for layer in self.layers:
            for t in dict.fromkeys(t for op in layer for t in op.reads if t in dropped):
                self.uses.setdefault(t, []).append(self.number[layer[0]])

    def most(self, order: Sequence[Op], curve: np.ndarray) -> np.ndarray:
        """The most bytes at each place, int64 (count,). `curve`: bytes live at each execution of `order`."""
        result, place = np.zeros(self.count, np.int64), self.count - 1
        for p in reversed(range(len(order))):
            place = p if p < self.able.forward else self.number.get(order[p], place)
            result[place] = max(result[place], curve[p])
        return result


def interleave(able: Repeatable, again: Callable[[list[Op]], Sequence[Op]]) -> tuple[Op, ...]:
    """The order of a step with re-runs. `again` returns the ops that run again for a layer's backward.

    They run right before the first of the layer's ops that reads any of their results.
    """
    order = list(able.program.ops[: able.forward])
    for layer in able.layers():
        runs = again(layer)
        made = {t for op in runs for t in op.writes}
        k = next((k for k, op in enumerate(layer) if made.intersection(op.reads)), 0)
        order += [*layer[:k], *runs, *layer[k:]]
    return tuple(order)


def by_segments(
    able: Repeatable, segment: Mapping[Tensor, int], dropped: Set[Tensor], have: Iterable[Tensor] = ()
) -> tuple[Op, ...]:
    """The order of a step in which a segment runs again once, for the first layer of backward that reads any of it. Its
    tensors stay until their last use.

    segment: {tensor of `dropped` that backward reads: its segment's number}
    have:    those of them that outlive forward all the same
    """
    of: dict[int, list[Tensor]] = defaultdict(list)
    for t, k in segment.items():
        of[k].append(t)
    there = set(have)

    def again(layer: list[Op]) -> list[Op]:
        missing = dict.fromkeys(segment[t] for op in layer for t in op.reads if t in dropped and t not in there)
        runs = able.runs([t for k in missing for t in of[k]], dropped, there)
        able.after(runs, there)
        return runs

    return interleave(able, again)


def read_in_backward(program: Program, dropped: Set[Tensor]) -> list[Tensor]:
    """The tensors of `dropped` that backward reads, in the order in which it does."""
    return list(dict.fromkeys(t for op in program.ops[program.forward :] for t in op.reads if t in dropped))


def preserving(program: Program, share: Share, dropped: Set[Tensor]) -> Share:
    """The sharing in which no op of forward writes over what runs again for `dropped` read, unless that is dropped,
    too."""
    needed = {t for op in program.ops for t in op.reads if not dropped.isdisjoint(op.writes)} - dropped
    return {new: old for new, old in share.items() if old not in needed}


def needs(able: Repeatable, layer: Sequence[Op]) -> int:
    """Bytes of activations, extras, gradients and inputs that a layer's backward touches.

    Tensors that lie in place count once.
    """
    share, result = able.share, set()
    for t in dict.fromkeys(t for op in layer for t in op.tensors if t.role in TOUCHED):
        while isinstance(old := share.get(t), Tensor):
            t = old
        result.add(t)
    return sum(t.nbytes for t in result)
