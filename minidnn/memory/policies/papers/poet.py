"""POET-style: the best mixture of runs again and paging, by an integer program (Patil, Jain, Dutta, Stoica, Gonzalez:
"POET: Training Neural Networks on Tiny Devices with Integrated Rematerialization and Paging", ICML 2022, section 4).

poet_program.py has the variables and the rows. HiGHS solves them, where the paper takes Gurobi. The
search has a limit of nodes and none of time, so equal calls give equal plans. Where the search ends before its limit,
the plan is the optimum of that program.

We deviate from the paper:

- The objective is seconds, not energy, and there is no limit of seconds besides.
- Paging takes time. The paper's limit counts the seconds of the ops alone.
- Each op's algorithm is decided, too. So are the bytes of a copy back that runs beside a stage.
- Ops of forward run again within backward only.
- Persistent tensors stay. So do tensors 1000 times smaller than the largest.

Our reading where the paper is silent: an op of backward takes the bytes of the gradient that it reads, if its kernel
permits it, as under liveness. Live bytes decide. If the placed arena exceeds the budget, the program is solved again
with that much less. A program with more than MOST decisions is refused: the paper's nets have fewer.
"""

from __future__ import annotations

from collections.abc import Iterator

from minidnn.costs import Costs
from minidnn.errors import BadInput
from minidnn.memory.joint.index import Index
from minidnn.memory.joint.linear import Answer, NoSolver, Solver, Unsolved
from minidnn.memory.plan import OffloadInterval, Plan, Point
from minidnn.memory.policies.ours.liveness import liveness
from minidnn.memory.policies.papers.poet_program import Stages
from minidnn.memory.policies.shared.probe import arena, fits
from minidnn.program import Op, Program, Tensor

MOST = 7000  # decisions of a program: VGG-19 has as many
NODES = 20_000  # of the search, at most
EXACT = 1e-4  # part by which a plan may miss the optimum
SHORT, QUICK = 50, 500  # ops and decisions of a program that is solved in tenths of a second
SMALL = 1000  # tensors so many times smaller than the largest stay
ATTEMPTS = 4  # rooms that are tried, each smaller by what the last arena had too much


class NoPlan(BadInput):
    """POET's program is too large, was not solved, or cannot be: the message says which."""


def poet(program: Program, costs: Costs, budget: int) -> Plan:
    """Copies and recomputation by an integer program.

    Raises NoPlan for a program with too many decisions, and without the package highspy.
    """
    plan = liveness(program, costs, budget, "p")
    if fits(program, costs, plan, budget):
        return plan
    index = Index(program, costs, SMALL)
    size = Stages(index).decisions
    if size > MOST:
        raise NoPlan(
            f"poet: {program.name} of {len(program.ops)} ops has {size} decisions, and poet solves programs of at most "
            f"{MOST}; best plans larger ones"
        )
    try:
        return _within(program, index, budget) or _leanest(index)
    except NoSolver as reason:
        raise NoPlan(f"poet {reason}") from None
    except Unsolved as reason:
        raise NoPlan(f"poet: no plan of {program.name} was found within {NODES} nodes ({reason})") from None


def quick(program: Program, costs: Costs) -> bool:
    """Whether the integer program is solved in tenths of a second."""
    return len(program.ops) <= SHORT and Stages(Index(program, costs, SMALL)).decisions <= QUICK


def candidate(program: Program, costs: Costs, budget: int) -> Plan:
    """poet's plan, or liveness's where poet has none: for those that ask several policies."""
    try:
        return poet(program, costs, budget)
    except NoPlan:
        return liveness(program, costs, budget, "p")


def _within(program: Program, index: Index, budget: int) -> Plan | None:
    """The quickest plan whose arena keeps the budget; None: there is none, or none was found."""
    room = budget
    for _ in range(ATTEMPTS):
        stages = Stages(index).with_rows()
        stages.high[stages.memory] = room * stages.byte
        answer = Solver(stages).least_whole(NODES, EXACT)
        if answer is None:
            return None
        plan = planned(stages, answer)
        over = arena(program, index.costs, plan, budget) - budget
        if over <= 0:
            return plan
        room -= over
    return None


def _leanest(index: Index) -> Plan:
    """The plan with the fewest live bytes."""
    stages = Stages(index).with_rows()
    solver = Solver(stages)
    solver.only(stages.memory, float("inf"))
    answer = solver.least_whole(NODES, EXACT)
    assert answer is not None, "without a limit of bytes every program has a plan"
    return planned(stages, answer)


def planned(stages: Stages, answer: Answer) -> Plan:
    """The plan that a solution of the program means."""
    ops, value = stages.ops, answer.value
    order: list[Op] = []
    begins: list[Point] = []  # of each stage
    at: dict[tuple[Point, Point], Point] = {}  # {(stage, op): the point of its run}
    for s in range(len(ops)):
        begins.append(len(order))
        for i in [i for i in stages.runs if (s, i) in stages.again and value[stages.again[s, i]] > 0.5] + [s]:
            at[s, i] = len(order)
            order.append(ops[i])
    begins.append(len(order))
    algorithm = {op: choices[0].algorithm for op, choices in zip(ops, stages.index.choices, strict=True)}
    for (p, c), variable in stages.faster.items():
        if value[variable] > 0.5:
            algorithm[ops[p]] = stages.index.choices[p][c].algorithm
    uses: dict[Tensor, list[Point]] = {t: [] for t in stages.decided}
    for p, op in enumerate(order):
        for t in op.tensors:
            if t in uses:
                uses[t].append(p)
    offloads = tuple(offload for t in stages.decided for offload in _offloads(stages, answer, t, begins, at, uses[t]))
    return Plan(tuple(order), offloads, algorithm, stages.share)


def _offloads(
    stages: Stages,
    answer: Answer,
    t: Tensor,
    begins: list[Point],
    at: dict[tuple[Point, Point], Point],
    uses: list[Point],
) -> Iterator[OffloadInterval]:
    """The absences of a tensor. begins: the first point of each stage; uses: the points of all that uses the tensor"""
    value, maker = answer.value, stages.maker.get(t, stages.decided[t])
    # Its residencies: (point where it is there, stage where its copy out begins and ends)
    makes = sorted(p for (_, i), p in at.items() if i == maker and t in stages.ops[i].writes)
    comes = {s: begins[s] for s in range(len(stages.ops)) if _is(value, stages.back.get((s, t)))}
    leaves = [s for s in range(len(stages.ops)) if _is(value, stages.out.get((s, t)))]
    starts = sorted([(p, None) for p in makes] + [(p, s) for s, p in comes.items()], key=lambda start: start[0])
    if t in stages.index.inputs:
        starts.insert(0, (uses[0], None))
    for (start, _), (end, again) in zip(starts, [*starts[1:], (begins[-1] + 1, None)], strict=True):
        out = next((s for s in leaves if start <= begins[s] < end), None)
        if out is None and again is None:
            continue  # it is freed behind its last use, or made anew
        last = max((p for p in uses if start <= p < end), default=start) + 1
        free = last if out is None else max(last, begins[out + 1])
        if again is None:
            yield OffloadInterval(t, begins[out], free, None, None)  # type: ignore[index]
        else:
            back = begins[again - 1] if _is(value, stages.early[again, t]) else begins[again]
            yield OffloadInterval(t, None if out is None else begins[out], free, back, begins[again])


def _is(value: object, variable: int | None) -> bool:
    """Whether the variable, if there is one, is 1."""
    return variable is not None and bool(value[variable] > 0.5)  # type: ignore[index]
