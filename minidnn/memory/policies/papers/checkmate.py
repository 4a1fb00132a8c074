"""Checkmate (Jain, Jain, Nrusimha, Gholami, Abbeel, Keutzer, Stoica, Gonzalez: "Checkmate: Breaking the Memory Wall
with Optimal Tensor Rematerialization", MLSys 2020). Checkmate-style: the deviations are below.

An integer program decides which values each stage of a step keeps, and which nodes run again for it
(checkmate_rows.py). Nothing leaves the device. For short programs it is solved. For others its linear
relaxation is solved and rounded in two phases: a value is kept if its S is at least a threshold; then as few ops run
again as S needs. We had the abstract and the authors' code (github.com/parasj/checkmate). It tries nine thresholds;
here there are 19.

Deviations:

  * The ops of backward run once, so stages are those of backward alone. Nothing runs again within forward.
  * Nodes are layers, and of long programs several layers (checkmate_graph.py). The authors let Gurobi
    search for an hour. HiGHS stops after a number of nodes, so that equal calls give equal plans.
  * A kept value is made where it is first read, not at the first stage of S that has it: that costs no more runs.
  * The code makes the relaxation's budget 10 % smaller. Here several parts of the budget are tried, since rounding may
    need more bytes or less. Each order that comes out is weighed with its exact bytes. It counts if it keeps the budget
    once it is placed. The quickest is taken.

The leanest plan is the one with the lowest arena among roundings near the relaxation's least budget and the order that
keeps nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from minidnn.costs import Choice, Costs
from minidnn.errors import BadInput
from minidnn.memory.joint.linear import MB, Answer, NoSolver, Solver, Unsolved
from minidnn.memory.plan import Plan
from minidnn.memory.policies.papers.checkmate_graph import Graph
from minidnn.memory.policies.papers.checkmate_rows import Remat
from minidnn.memory.policies.shared import probe
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.policies.shared.orders import in_place
from minidnn.program import Op, Program

MOST = 128  # nodes, and stages, at most
WHOLE = 200  # whole variables of a program that is solved in whole numbers
NODES = 50  # of that search, at most
GAP = 1e-3  # it also ends this close to its bound
THRESHOLDS = tuple(k / 20 for k in range(1, 20))
PARTS = (1.0, 0.95, 0.9, 0.8, 0.6)  # of the budget
STALE = 2  # the search ends once so many parts were no better
LEANEST = (0.0, 0.05, 0.2)  # parts by which budgets of lean plans exceed the relaxation's least

Finish = Callable[[Plan], Plan]  # chooses algorithms for an order


def checkmate(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Recomputation by an integer program, or a rounding.

    Raises BadInput without the package highspy.
    """
    algorithm = choose(program, costs, algorithms)
    choices = {op: [Choice(a, costs.seconds(op, a))] for op, a in algorithm.items()}
    own = Plan(program.ops, algorithm=algorithm, share=in_place(program, program.ops))
    return rematerialized(program, costs, budget, own, choices, lambda plan: plan)


def rematerialized(
    program: Program,
    costs: Costs,
    budget: int,
    own: Plan,
    choices: Mapping[Op, Sequence[Choice]],
    finish: Finish,
) -> Plan:
    """The quickest plan found that keeps the budget; else the leanest.

    own:     the plan in which nothing runs again
    choices: for each op its algorithms, the leanest first
    finish:  chooses algorithms for an order
    """
    kept = finish(own)
    best = kept if probe.fits(program, costs, kept, budget) else None
    quickest = float("inf") if best is None else probe.op_seconds(costs, best)
    if quickest <= sum(choices[op][-1].seconds for op in program.ops) or program.forward == len(program.ops):
        return best or own  # without backward nothing is made again
    orders = _Orders(program, costs, own, choices)
    stale = 0
    for several in orders.within(budget):
        before = quickest
        for order in several:
            plan = finish(replace(own, order=order, share=in_place(program, order)))
            if (taken := probe.op_seconds(costs, plan)) < quickest and probe.fits(program, costs, plan, budget):
                best, quickest = plan, taken
        stale = stale + 1 if quickest == before and best is not None else 0
        if stale == STALE:
            break
    if best is not None:
        return best
    plans = [replace(own, order=order, share=in_place(program, order)) for order in dict.fromkeys(orders.leanest())]
    return min([own, *plans], key=lambda plan: (probe.arena(program, costs, plan), probe.op_seconds(costs, plan)))


@dataclass(eq=False)
class _Orders:
    """The orders that the integer program and its roundings give. Raises BadInput where HiGHS is not there."""

    program: Program
    costs: Costs
    own: Plan
    choices: Mapping[Op, Sequence[Choice]]

    def __post_init__(self) -> None:
        self.graph = Graph(self.program, self.costs, self.own, MOST)
        self.rows = Remat(self.graph, self.choices)

    def within(self, budget: int) -> Iterator[Iterator[tuple[Op, ...]]]:
        """Orders for a budget: the integer program's, then for each part of the budget those of the thresholds, which
        keep less and less."""
        if len(self.rows.whole) <= WHOLE:
            solver = self._solver()
            self._limit(solver, budget)
            with suppress(Unsolved):  # within these nodes: the roundings are left
                if (answer := solver.least_whole(NODES, GAP)) is not None:
                    yield iter([self._rounded(answer, 0.5)])
        solver = self._solver()
        for part in PARTS:
            self._limit(solver, int(part * budget))
            if (answer := solver.least()) is None:
                return
            yield (self._rounded(answer, threshold) for threshold in THRESHOLDS)

    def leanest(self) -> Iterator[tuple[Op, ...]]:
        """Orders that take few bytes."""
        yield self.graph.order(lambda s, v: False)
        solver = self._solver()
        solver.only(self.rows.over, self.rows.most)
        self._limit(solver, 0)
        answer = solver.least()
        assert answer is not None, "without a limit of bytes every program has a plan"
        least, solver = int(answer.value[self.rows.over] * MB) + 1, self._solver()
        for part in LEANEST:
            self._limit(solver, int(least * (1 + part)))
            if (answer := solver.least()) is not None:
                for threshold in THRESHOLDS:
                    yield self._rounded(answer, threshold)

    def _solver(self) -> Solver:
        try:
            return Solver(self.rows)
        except NoSolver as error:
            raise BadInput(
                f"checkmate and monet solve a linear program, which {error}; best and dtr do without"
            ) from error

    def _limit(self, solver: Solver, budget: int) -> None:
        for row, base in self.rows.memory:
            solver.limit(row, budget / MB - base)

    def _rounded(self, answer: Answer, threshold: float) -> tuple[Op, ...]:
        value, keeps = answer.value, self.rows.keeps
        return self.graph.order(lambda s, v: (s, v) in keeps and value[keeps[s, v]] >= threshold - 1e-6)
