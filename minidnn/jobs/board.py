"""The board: the plans of many policies, on several nets, GPUs and budgets, each with its gap to the bound.

A contest is a net on a GPU. Its bounds are computed once. A cell is a policy in a contest within a budget: a row of the
board. Cells are planned in processes side by side. A policy that raises puts its refusal, or its error of any kind,
into its cell.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from minidnn.costs import Costs
from minidnn.errors import BadInput, Failed
from minidnn.jobs.outcome import add_bound, bound_at, bounds, free, outcome
from minidnn.jobs.processes import Processes, result
from minidnn.memory.joint.linear import NoSolver
from minidnn.memory.policies import BUDGETED
from minidnn.program import Program
from minidnn.results.board import BoardRow, ContestRow, StandingRow

NEAR = 1.05  # times the quickest's seconds
SAME = 1.001  # times that differ by less are equal
Budget = int | float  # bytes, or a part of the arena of `free`
Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Contest:
    """A net on a GPU, as it was asked for.

    name: the program whose steps count; host: bytes of the host that plans may use
    """

    net: str
    batch: int | None
    gpu: str
    title: str
    programs: tuple[Program, ...]
    name: str
    costs: Costs
    host: int | None

    @property
    def train(self) -> Program:
        return next(p for p in self.programs if p.name == self.name)

    def row(self, **known: Any) -> ContestRow:
        """The contest, with what is known of it."""
        return ContestRow(
            net=self.net, batch=self.batch, gpu=self.gpu, title=self.title, ops=len(self.train.ops),
            **{"whole_bytes": None, "free_seconds": None, "least_bytes": None, **known},
        )  # fmt: skip

    def cell(self, policy: str, budget: int, part: float | None, bound: float | None) -> BoardRow:
        """A cell before it is planned."""
        return BoardRow(
            net=self.net, batch=self.batch, gpu=self.gpu, budget_bytes=budget, budget_part=part, policy=policy,
            fits=False, failed=False, bound_seconds=bound, plan_seconds=0.0,
        )  # fmt: skip


@dataclass
class Cells:
    """The board. rows: of each contest, by budgets and policies; finished: whether all are there"""

    contests: list[ContestRow]
    rows: list[list[BoardRow]]
    finished: bool = True


def board(
    contests: Sequence[Contest],
    budgets: Sequence[Budget],
    policies: Sequence[str],
    jobs: int = 1,
    tell: Tell = lambda text: None,
) -> Cells:
    """All cells, or those that were there when Ctrl-C came.

    jobs: processes that plan; 1: this one does
    """
    cells = Cells([contest.row() for contest in contests], [[] for _ in contests])
    count, done = len(contests) * (1 + len(budgets) * len(policies)), 0
    tasks: deque[tuple[int, BoardRow | None]] = deque((number, None) for number in range(len(contests)))
    pending: dict[Future[Any], tuple[int, BoardRow | None]] = {}
    processes = Processes(jobs, contests)
    try:
        while tasks or pending:
            while tasks and len(pending) < (2 * jobs if jobs > 1 else 1):
                number, asked = tasks.popleft()
                task = (ground, number, tuple(budgets)) if asked is None else (cell, number, asked)
                pending[processes.submit(*task)] = number, asked
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                number, asked = pending.pop(future)
                contest, rows = contests[number], cells.rows[number]
                done += 1
                if asked is not None:
                    rows.append(result(future, partial(_failed, asked)))
                else:
                    row, limits = result(future, partial(_unknown, contest))
                    cells.contests[number] = row
                    for one in _each(contest, row.whole_bytes or 0, limits, budgets, policies):
                        if row.why is None:
                            tasks.append((number, one))
                        else:
                            rows.append(_failed(one, row.why))
                            done += 1
                tell(f"{done} of {count}: {contest.net} on {contest.gpu}")
    except KeyboardInterrupt:
        cells.finished = False
    finally:
        processes.close()
    rank = {policy: place for place, policy in enumerate(policies)}
    for rows in cells.rows:
        rows.sort(key=lambda row: (-row.budget_bytes, rank[row.policy]))
    return cells


def standings(cells: Cells, policies: Sequence[str]) -> list[StandingRow]:
    """How each policy did, the one that was quickest most often first."""
    best: dict[tuple[int, int], float] = {}
    every = [(number, row) for number, rows in enumerate(cells.rows) for row in rows]
    for number, row in every:
        if row.step_seconds is not None:
            key = number, row.budget_bytes
            best[key] = min(row.step_seconds, best.get(key, row.step_seconds))
    standing = []
    for policy in policies:
        mine = [(number, row) for number, row in every if row.policy == policy]
        times = [(row.step_seconds, best[n, row.budget_bytes]) for n, row in mine if row.step_seconds is not None]
        gaps = [row.gap for _, row in mine if row.gap is not None]
        failed = sum(row.failed for _, row in mine)
        standing.append(
            StandingRow(
                policy=policy, cells=len(mine), quickest=sum(s <= b * SAME for s, b in times),
                near=sum(s <= b * NEAR for s, b in times), kept=len(times),
                refused_cells=len(mine) - len(times) - failed, failed_cells=failed,
                median_gap=median(gaps) if gaps else None, plan_seconds=sum(row.plan_seconds or 0.0 for _, row in mine),
            )
        )  # fmt: skip
    return sorted(standing, key=lambda s: (-s.quickest, -s.near, -s.kept, policies.index(s.policy)))


# ---- planning, in this process or in others


def ground(
    contests: Sequence[Contest], number: int, budgets: tuple[Budget, ...]
) -> tuple[ContestRow, dict[int, float]]:
    """The numbers that all cells of a contest are compared with, and the bounds {budget: seconds of a step}, without
    budgets that the bound excludes; none without a solver."""
    contest = contests[number]
    try:
        loose = free(contest.programs, contest.costs, contest.name)
        known: dict[str, Any] = {"whole_bytes": loose.arrangement.arena, "free_seconds": loose.seconds}
        limits = {}
        with suppress(NoSolver):
            asked = contest.train, contest.costs
            for budget in (_bytes(one, loose.arrangement.arena) for one in budgets):
                if (bound := bound_at(*asked, budget, contest.host, ())) is not None:
                    limits[budget] = bound.seconds
            known["least_bytes"] = bounds(*asked, contest.host).least()
        return contest.row(**known), limits
    except Exception as error:
        return _unknown(contest, _message(error))


def cell(contests: Sequence[Contest], number: int, asked: BoardRow) -> BoardRow:
    """The cell of a policy within a budget, as far as it was `asked`."""
    contest, began = contests[number], time.process_time()
    try:
        known = _numbers(contest, asked)
    except Exception as error:
        known = {"why": _message(error), "failed": True}
    return asked.model_copy(update={**known, "plan_seconds": time.process_time() - began})


def _numbers(contest: Contest, asked: BoardRow) -> dict[str, Any]:
    one = outcome(contest.programs, asked.policy, contest.costs, asked.budget_bytes, contest.host, contest.name)
    if one.refused is not None:
        smallest = "smallest_host_budget_bytes" if one.refused.host else "smallest_budget_bytes"
        return {"why": one.why, smallest: one.refused.smallest}
    if asked.bound_seconds is None or asked.policy == BUDGETED or not one.schedule.program.parts:
        one.set_bound(asked.bound_seconds)
    else:  # in parts that BUDGETED does not try it may be below
        add_bound(one, contest.train, asked.budget_bytes, contest.host)
    plan = one.arrangement
    return {
        "fits": True, "peak_bytes": plan.arena, "step_seconds": one.seconds, "bound_seconds": one.bound,
        "gap": one.gap, "moved_bytes": one.moved, "host_bytes": plan.off_device, "recomputed_ops": one.recomputed,
    }  # fmt: skip


def _each(
    contest: Contest, whole: int, limits: dict[int, float], budgets: Sequence[Budget], policies: Sequence[str]
) -> Iterator[BoardRow]:
    for budget in budgets:
        nbytes, part = _bytes(budget, whole), None if isinstance(budget, int) else budget
        for policy in policies:
            yield contest.cell(policy, nbytes, part, limits.get(nbytes))


def _bytes(budget: Budget, whole: int) -> int:
    return budget if isinstance(budget, int) else int(whole * budget)


def _unknown(contest: Contest, why: str) -> tuple[ContestRow, dict[int, float]]:
    return contest.row(why=why), {}


def _failed(asked: BoardRow, why: str) -> BoardRow:
    return asked.model_copy(update={"why": why, "failed": True, "bound_seconds": None})


def _message(error: Exception) -> str:
    """The error's message; of one that no user should see, its type, too."""
    return str(error) if isinstance(error, BadInput | Failed) else f"{type(error).__name__}: {error}"
