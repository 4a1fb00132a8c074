"""Checkmate's graph of a program: few nodes of forward, few stages of backward, and the values between them.

A node is the ops of a layer's forward, a stage those of a layer's backward, as in the paper's graph of layers. If that
makes too many, neighbours are joined: the smallest first, and preferably those with many bytes crossing between them,
since a cut there would be a bad place to keep a value.

A value is all tensors of a node that the same nodes and stages read. It is kept or dropped as a whole. Only tensors
that an op of forward can make again, and that are not very small, are part of values. All others are there whenever
they are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, Point
from minidnn.memory.policies.shared.orders import lineage, makers
from minidnn.memory.policies.shared.probe import aligned_curve, listing
from minidnn.memory.schedule import aligned
from minidnn.program import Algorithm, Op, Program, Tensor

SMALL = 100  # tensors this many times smaller than the largest are always there


@dataclass(frozen=True, eq=False)
class Value:
    """Tensors that are kept together. node: that makes them; nodes, stages: that read them; nbytes: aligned"""

    tensors: tuple[Tensor, ...]
    node: int
    nodes: tuple[int, ...]
    stages: tuple[int, ...]
    nbytes: int


class Graph:
    """The nodes, stages and values of a program.

    nodes, stages: (first op, op behind the last) of each, as points of the program
    again:   for each node, its ops that may run again
    inner:   for each op of `again`, aligned bytes of the node's tensors that are no values, while the op runs again
    plain:   int64 (ops,), aligned live bytes of the program's own order, without workspaces
    others:  int64 (ops,), those of them that are no values
    crossing: for each stage, bytes of `others` that live across its beginning
    """

    def __init__(self, program: Program, costs: Costs, own: Plan, most: int) -> None:
        """own: a plan in the program's order; most: nodes, and stages, at most"""
        self.program, self.make = program, makers(program, costs)
        ops, start = program.ops, program.forward
        bare = {op: Algorithm(own.algorithm[op].name) for op in ops}
        result = listing(program, costs, Plan(ops, algorithm=bare, share=own.share))
        self.plain = aligned_curve(result)
        cross = np.zeros(len(ops) + 1, np.int64)  # bytes that live across each point
        for b in result.buffers:
            cross[b.lo + 1 : b.hi] += aligned(b.nbytes)
        written = [sum(t.nbytes for t in op.writes) for op in ops]
        self.nodes = _joined(_layers(ops, 0, start), written, cross, most)
        self.stages = _joined(_layers(ops, start, len(ops)), written, cross, most)
        self.values = self._values()
        held = {t for v in self.values for t in v.tensors}
        valued = np.zeros(len(ops) + 1, np.int64)
        over = np.zeros(len(ops) + 1, np.int64)
        for b in result.buffers:
            residencies = [s for s in b.residencies if s.tensor in held]
            if residencies:
                lo, hi = min(s.lo for s in residencies), max(s.hi for s in residencies)
                valued[lo:hi] += aligned(b.nbytes)
                over[lo + 1 : hi] += aligned(b.nbytes)
        self.others = self.plain - valued[:-1]
        self.crossing = [int(cross[lo] - over[lo]) for lo, _ in self.stages]
        self.again = [tuple(op for op in ops[lo:hi] if any(t in self.make for t in op.writes)) for lo, hi in self.nodes]
        self.inner = [_inner(again, held) for again in self.again]
        self.value_of = {t: v for v in self.values for t in v.tensors}
        self.place = {op: p for p, op in enumerate(ops)}
        self.small = {t for op in ops[start:] for t in op.reads if t in self.make and t not in held}

    def _values(self) -> list[Value]:
        """The values, in order of their nodes."""
        ops = self.program.ops
        node, stage = (
            {op: k for k, (lo, hi) in enumerate(parts) for op in ops[lo:hi]} for parts in (self.nodes, self.stages)
        )
        readers: dict[Tensor, dict[Op, None]] = defaultdict(dict)
        for op in ops:
            for t in op.reads:
                readers[t][op] = None
        least = max((t.nbytes for t in self.make), default=0) / SMALL
        groups: dict[tuple[int, tuple[int, ...], tuple[int, ...]], list[Tensor]] = defaultdict(list)
        for t, op in self.make.items():
            nodes = sorted({node[r] for r in readers[t] if r in node} - {node[op]})
            stages = sorted({stage[r] for r in readers[t] if r in stage})
            if (nodes or stages) and t.nbytes >= max(least, 1):
                groups[node[op], tuple(nodes), tuple(stages)].append(t)
        return [Value(tuple(ts), *key, sum(aligned(t.nbytes) for t in ts)) for key, ts in groups.items()]

    def overwritten(self, v: Value) -> bool:
        """Whether all that reads the value is one node, which may write its results over it."""
        if v.stages or len(v.nodes) != 1:
            return False
        pairs = {read: write for op in self.again[v.nodes[0]] for read, write in op.inplace}
        return all(t in pairs and pairs[t].nbytes <= t.nbytes for t in v.tensors)

    def order(self, keeps: Callable[[int, Value], bool]) -> tuple[Op, ...]:
        """The order of a step. kept: whether a value that is there before a stage stays from the stage before, or for
        stage 0 from forward. A tensor that an op of a stage reads and that is not there is recomputed before that
        op."""
        ops, place = self.program.ops, self.place
        order = list(ops[: self.program.forward])
        there = {t for v in self.values for t in v.tensors}

        def gone(t: Tensor) -> bool:
            return t not in there and t not in self.small

        for s, (lo, hi) in enumerate(self.stages):
            there = {t for t in there if keeps(s, self.value_of[t])}
            for op in ops[lo:hi]:
                runs = lineage((t for t in op.reads if t in self.make), self.make, gone)
                order += [*sorted(runs, key=place.__getitem__), op]
                there.update(t for run in runs for t in run.writes if t in self.value_of)
        return tuple(order)


def _layers(ops: Sequence[Op], lo: Point, hi: Point) -> list[tuple[Point, Point]]:
    """[first op, op behind the last) of each run of ops of one layer."""
    starts = [p for p in range(lo, hi) if p == lo or ops[p].layer != ops[p - 1].layer]
    return list(zip(starts, [*starts[1:], hi], strict=True))


def _joined(
    parts: list[tuple[Point, Point]], nbytes: Sequence[int], cross: np.ndarray, most: int
) -> list[tuple[Point, Point]]:
    """The parts, of which neighbours are joined until at most `most` are left."""
    sizes = [sum(nbytes[lo:hi]) + 1 for lo, hi in parts]
    while len(parts) > most:
        scores = [(sizes[k] + sizes[k + 1]) / (1 + cross[parts[k + 1][0]]) for k in range(len(parts) - 1)]
        k = int(np.argmin(scores))
        parts = [*parts[:k], (parts[k][0], parts[k + 1][1]), *parts[k + 2 :]]
        sizes = [*sizes[:k], sizes[k] + sizes[k + 1], *sizes[k + 2 :]]
    return parts


def _inner(again: Sequence[Op], held: set[Tensor]) -> tuple[int, ...]:
    """For each op, bytes of the tensors of these ops that are no values; each from its writer to its last use."""
    last = {t: p for p, op in enumerate(again) for t in op.tensors}
    result, live = [], 0
    for p, op in enumerate(again):
        live += sum(aligned(t.nbytes) for t in op.writes if t not in held)
        result.append(live)
        own = {t for q in again[: p + 1] for t in q.writes if t not in held and last[t] == p}
        live -= sum(aligned(t.nbytes) for t in own)
    return tuple(result)
