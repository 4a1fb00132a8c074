"""Checkmate's integer program: which values each stage keeps, and which nodes run again before it (checkmate.py).

    S[s, v]     value v is there when stage s begins. For stage 0: forward keeps it
    R[s, i]     node i runs again before the ops of stage s, in the nodes' order

    S[s+1, v] <= S[s, v] + R[s, node of v]     what is kept was there, or is made
    R[s, i] <= S[s, v] + R[s, node of v]       for each value v that node i reads
    1 <= S[s, v] + R[s, node of v]             for each value v that stage s reads

Minimised are the seconds of runs. The paper has the gradients among its nodes, too, each with a stage. Here the ops of
backward run once, so S and R have rows for its stages alone, and columns for forward alone. So has MONeT's program, and
the live bytes are counted as there. While node i runs again in stage s, these are on the device:

    the values of node i and of later nodes that S[s] has
    of former nodes the values that stage s reads, or that S[s+1] has
    what node i reads and writes, and its workspace

While an op of stage s runs, it is what the stage reads from this op on, and what S[s+1] has.

The paper's own variables FREE and U would also count tensors that are made for later runs of the same stage. They make
the program twice as large, and three times as slow. Orders are weighed with their exact bytes anyway.

An op with several algorithms has a variable A for each but the leanest (MONeT): fewer seconds for more workspace. With
it the seconds of a run depend on a product. `slow` bounds it from below: seconds that a run takes longer than with the
fastest algorithm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from minidnn.costs import Choice
from minidnn.memory.joint.linear import MB, MS, Rows
from minidnn.memory.policies.papers.checkmate_graph import Graph, Value
from minidnn.memory.policies.shared.orders import last_uses
from minidnn.memory.schedule import aligned
from minidnn.program import Op

Term = tuple[int, float]


class Remat(Rows):
    """The program, without its budget.

    keeps:  {(stage, value): S}
    memory: (row of live bytes, its constant part in MB)
    over:   the variable of bytes beyond the budget; else it is 0
    """

    def __init__(self, graph: Graph, choices: Mapping[Op, Sequence[Choice]]) -> None:
        """choices: for each op its algorithms, the leanest first"""
        super().__init__()
        self.graph, self.choices = graph, choices
        self.keeps: dict[tuple[int, Value], int] = {}
        self.runs: dict[tuple[int, int], int] = {}
        self.memory: list[tuple[int, float]] = []
        self.most = (2 * sum(v.nbytes for v in graph.values) + int(graph.plain.max(initial=0))) / MB
        self.most += max(aligned(c.algorithm.workspace) for cs in choices.values() for c in cs) / MB
        self.over = self.var(high=0)
        self.faster = {op: [self.var((c.seconds - cs[0].seconds) / MS, high=1, whole=True) for c in cs[1:]]
                       for op, cs in choices.items()}  # fmt: skip
        for several in self.faster.values():
            if len(several) > 1:
                self.row([(v, 1) for v in several], high=1)
        self.made: list[list[Value]] = [[] for _ in graph.nodes]
        self.read: list[list[Value]] = [[] for _ in graph.nodes]
        for v in graph.values:
            self.made[v.node].append(v)
            for i in v.nodes:
                self.read[i].append(v)
        self.until = self._until()
        self._variables()
        self._forward()
        for s in range(len(graph.stages)):
            self._stage(s)

    def _until(self) -> dict[Value, int]:
        """{value: the last stage that may want it, to read it or to make another}"""
        result: dict[Value, int] = {}
        for values in reversed(self.made):
            for v in values:
                wanted = [result[w] for i in v.nodes for w in self.made[i]]
                result[v] = max([*v.stages, *wanted], default=-1)
        return result

    def _variables(self) -> None:
        for s in range(len(self.graph.stages)):
            for i, values in enumerate(self.made):
                if any(self.until[v] >= s for v in values):
                    seconds = sum(self.choices[op][-1].seconds for op in self.graph.again[i]) / MS
                    self.runs[s, i] = self.var(seconds, high=1, whole=True)
            for v in self.graph.values:
                if self.until[v] >= s:
                    self.keeps[s, v] = self.var(high=1, whole=True)

    def _there(self, s: int, v: Value) -> list[Term]:
        """S[s, v] + R[s, node of v]"""
        return [(result, 1.0) for result in (self.keeps.get((s, v)), self.runs.get((s, v.node))) if result is not None]

    def _bytes(self, op: Op, terms: list[Term], base: float) -> None:
        """A row of live bytes while an op runs: terms, base and the op's workspace are within the budget."""
        lean = aligned(self.choices[op][0].algorithm.workspace) / MB
        more = [(aligned(c.algorithm.workspace) / MB - lean) for c in self.choices[op][1:]]
        terms = [*terms, *zip(self.faster[op], more, strict=True), (self.over, -1.0)]
        self.memory.append((self.row(terms), base + lean))

    def _forward(self) -> None:
        """Live bytes of forward: a tensor that is not kept is freed behind its last reader in forward."""
        graph, ops = self.graph, self.graph.program.ops
        last = last_uses(ops[: graph.program.forward])
        readers = {v: max(last[t] for t in v.tensors) for v in graph.values}
        behind = sorted(graph.values, key=readers.__getitem__)
        k, terms, gone = 0, list[Term](), 0.0
        for lo, hi in graph.nodes:
            for p in range(lo, hi):
                while k < len(behind) and readers[behind[k]] < p:
                    v = behind[k]
                    if (0, v) in self.keeps:
                        terms.append((self.keeps[0, v], v.nbytes / MB))
                        gone += v.nbytes / MB
                    k += 1
                if p == hi - 1 or self.faster[ops[p]] or graph.plain[p] >= graph.plain[lo:hi].max():
                    self._bytes(ops[p], list(terms), graph.plain[p] / MB - gone)

    def _stage(self, s: int) -> None:
        graph = self.graph
        for v in graph.values:
            if s and (s, v) in self.keeps:
                self.row([(self.keeps[s, v], -1.0), *self._there(s - 1, v)], low=0)
            if s in v.stages:
                self.row(self._there(s, v), low=1)
        live = [(self.keeps[s, v], v.nbytes / MB) for v in graph.values if (s, v) in self.keeps]
        total = self._sum(live, graph.crossing[s] / MB)
        for i in range(len(graph.nodes)):
            if (s, i) in self.runs:
                for v in self.read[i]:
                    self.row([(self.runs[s, i], -1.0), *self._there(s, v)], low=0)
                self._running(s, i, total)
            passed, base = list[Term](), 0.0
            for v in self.made[i]:
                if (s, v) in self.keeps:
                    passed.append((self.keeps[s, v], -v.nbytes / MB))
                    if s in v.stages:
                        base += v.nbytes / MB
                    elif (s + 1, v) in self.keeps:
                        passed.append((self.keeps[s + 1, v], v.nbytes / MB))
            if passed:
                total = self._sum([(total, 1.0), *passed], base)
        self._own(s, total)

    def _own(self, s: int, total: int) -> None:
        """Rows of live bytes for the ops of a stage. A tensor is freed behind the last of them that reads it, unless
        S[s+1] has it. total: the bytes of all their reads, and of the values of S[s+1]."""
        graph, ops = self.graph, self.graph.program.ops
        lo, hi = graph.stages[s]
        last = last_uses(ops[lo:hi])
        read = sorted(
            (lo + max(last[t] for t in v.tensors if t in last), k) for k, v in enumerate(graph.values) if s in v.stages
        )
        terms, gone = [(total, 1.0)], 0.0
        points = sorted({lo, *(p + 1 for p, _ in read), hi})
        for first, end in pairwise(points):
            for p, k in read:
                if p + 1 == first:
                    v = graph.values[k]
                    gone += v.nbytes / MB
                    if (s + 1, v) in self.keeps:
                        terms.append((self.keeps[s + 1, v], v.nbytes / MB))
            most = graph.others[first:end].max()
            for p in range(first, end):
                if self.faster[ops[p]] or graph.others[p] == most or self.choices[ops[p]][0].algorithm.workspace:
                    self._bytes(ops[p], terms, float(graph.others[p] - graph.crossing[s]) / MB - gone)

    def _running(self, s: int, i: int, total: int) -> None:
        """Rows of the bytes and seconds of a node's ops, if they run again. total: the bytes that are live anyway."""
        run, size = self.runs[s, i], 0.0
        there: list[Term] = [(total, 1.0)]
        for v in self.made[i]:
            if (s, v) in self.keeps:
                size += v.nbytes / MB
                there.append((self.keeps[s, v], -v.nbytes / MB))
        for v in self.read[i]:
            if s not in v.stages and not self.graph.overwritten(v):  # else its bytes are in the total, or a result's
                size += v.nbytes / MB
                if (s + 1, v) in self.keeps:
                    there.append((self.keeps[s + 1, v], -v.nbytes / MB))
        most = 0.0
        for op, inner in zip(self.graph.again[i], self.graph.inner[i], strict=True):
            lean, several = self.choices[op][0], self.choices[op][1:]
            workspace = aligned(lean.algorithm.workspace) / MB
            most = max(most, inner / MB + workspace)
            if several:
                # The workspace beyond the leanest's counts only if the op runs.
                extra = max(0.0, max(aligned(c.algorithm.workspace) for c in several) / MB - workspace)
                self._bytes(op, [*there, (run, size + inner / MB + workspace + extra)], -extra - workspace)
                slow, longest = self.var(1.0), (lean.seconds - several[-1].seconds) / MS
                gains = [(v, (lean.seconds - c.seconds) / MS) for v, c in zip(self.faster[op], several, strict=True)]
                self.row([(slow, 1.0), (run, -longest), *gains], low=0)
        self.memory.append((self.row([*there, (run, size + most), (self.over, -1.0)]), 0.0))

    def _sum(self, terms: Sequence[Term], base: float = 0.0) -> int:
        total = self.var(low=-self.most, high=2 * self.most)
        self.row([(total, 1.0), *((v, -factor) for v, factor in terms)], base, base)
        return total
