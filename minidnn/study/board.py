"""The board: the plans of many policies, on several nets, GPUs and budgets, each with its gap to the bound.

A contest is a net on a GPU. Its bounds are computed once. A cell is a policy in a contest within a budget. Cells are
planned in processes side by side. A policy that raises puts its refusal, or its error of any kind, into its cell.
"""

from __future__ import annotations

import io
import multiprocessing
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

from minidnn.costs import Costs
from minidnn.errors import BadInput, Failed
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import copied
from minidnn.memory.joint.family import Family
from minidnn.memory.joint.linear import NoSolver
from minidnn.memory.planning import arrange
from minidnn.memory.schedule import Compute
from minidnn.program import Program

WHOLE = "liveness:p"  # parts of a budget are parts of its arena: nothing moves, every op has its fastest algorithm
ENDLESS = 1 << 62  # bytes
NEAR = 1.05  # times the quickest's seconds
SAME = 1.001  # times that differ by less are equal
Budget = int | float  # bytes, or a part of WHOLE's arena
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
    def ops(self) -> int:
        return len(next(p for p in self.programs if p.name == self.name).ops)


@dataclass(frozen=True)
class Ground:
    """The bounds that all cells of a contest are compared with.

    whole: bytes of WHOLE's arena; free: seconds of its step; least: bytes that no plan of whole ops is below
    bounds: {budget: seconds that no plan of whole ops within it is below}; without those that the bound excludes, or
            without a solver
    why:   why none of this is known
    """

    whole: int | None = None
    free: float | None = None
    least: int | None = None
    bounds: dict[int, float] = field(default_factory=dict)
    why: str | None = None


@dataclass(frozen=True)
class Cell:
    """A policy's plan within a budget.

    part:     the budget as a part of WHOLE's arena; None: it was named in bytes
    planning: seconds of a processor
    why:      why it was refused, or how planning failed; the other numbers are not known then
    failed:   whether it failed, and was not refused
    smallest: bytes of the smallest budget that would do, of the host if `host_refused`
    """

    policy: str
    budget: int
    part: float | None
    planning: float = 0.0
    peak: int | None = None
    seconds: float | None = None
    bound: float | None = None
    moved: int | None = None
    host: int | None = None
    again: int | None = None
    why: str | None = None
    failed: bool = False
    smallest: int | None = None
    host_refused: bool = False

    @property
    def fits(self) -> bool:
        return self.seconds is not None

    @property
    def gap(self) -> float | None:
        return None if self.seconds is None or not self.bound else self.seconds / self.bound - 1


@dataclass
class Found:
    """The board. cells: {number of the contest: its cells, by budgets and policies}; finished: whether all are there"""

    contests: Sequence[Contest]
    grounds: dict[int, Ground] = field(default_factory=dict)
    cells: dict[int, list[Cell]] = field(default_factory=dict)
    finished: bool = True

    def each(self) -> Iterator[tuple[Contest, Cell]]:
        for number, contest in enumerate(self.contests):
            for cell in self.cells.get(number, ()):
                yield contest, cell


@dataclass(frozen=True)
class Standing:
    """How a policy did in all its cells. near: those within NEAR of the quickest, which count, too"""

    policy: str
    cells: int
    quickest: int
    near: int
    kept: int
    refused: int
    failed: int
    gap: float | None  # the median
    planning: float


def board(
    contests: Sequence[Contest],
    budgets: Sequence[Budget],
    policies: Sequence[str],
    jobs: int = 1,
    tell: Tell = lambda text: None,
) -> Found:
    """All cells, or those that were there when Ctrl-C came.

    jobs: processes that plan; 1: this one does
    """
    found = Found(contests, cells={number: [] for number in range(len(contests))})
    count = len(contests) * (1 + len(budgets) * len(policies))
    tasks: deque[tuple[int, Cell | None]] = deque((number, None) for number in range(len(contests)))
    pending: dict[Future[Any], tuple[int, Cell | None]] = {}
    pool = _pool(contests, jobs)
    try:
        while tasks or pending:
            while tasks and len(pending) < (2 * jobs if jobs > 1 else 1):
                number, asked = tasks.popleft()
                pending[_submitted(pool, number, asked, tuple(budgets))] = number, asked
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                number, asked = pending.pop(future)
                if asked is not None:
                    found.cells[number].append(_answer(future, partial(_failed, asked)))
                else:
                    told = found.grounds[number] = _answer(future, lambda why: Ground(why=why))
                    cells = _asked(told, budgets, policies)
                    if told.why is None:
                        tasks += [(number, cell) for cell in cells]
                    else:
                        found.cells[number] = [_failed(cell, told.why) for cell in cells]
                done = len(found.grounds) + sum(map(len, found.cells.values()))
                tell(f"{done} of {count}: {contests[number].net} on {contests[number].gpu}")
    except KeyboardInterrupt:
        found.finished = False
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    rank = {policy: place for place, policy in enumerate(policies)}
    for planned in found.cells.values():
        planned.sort(key=lambda cell: (-cell.budget, rank[cell.policy]))
    return found


def standings(found: Found, policies: Sequence[str]) -> list[Standing]:
    """How each policy did, the one that was quickest most often first."""
    best: dict[tuple[int, int], float] = {}
    for number, cells in found.cells.items():
        for cell in cells:
            if cell.seconds is not None:
                best[number, cell.budget] = min(cell.seconds, best.get((number, cell.budget), cell.seconds))
    rows = []
    for policy in policies:
        mine = [(n, cell) for n, cells in found.cells.items() for cell in cells if cell.policy == policy]
        times = [(cell.seconds, best[n, cell.budget]) for n, cell in mine if cell.seconds is not None]
        gaps = [cell.gap for _, cell in mine if cell.gap is not None]
        failed = sum(cell.failed for _, cell in mine)
        rows.append(
            Standing(
                policy, len(mine), sum(s <= b * SAME for s, b in times), sum(s <= b * NEAR for s, b in times),
                len(times), len(mine) - len(times) - failed, failed, median(gaps) if gaps else None,
                sum(cell.planning for _, cell in mine),
            )
        )  # fmt: skip
    return sorted(rows, key=lambda s: (-s.quickest, -s.near, -s.kept, policies.index(s.policy)))


# ---- planning, in this process or in others

_HELD: Sequence[Contest] = ()  # the contests that processes plan: a fork has them without a copy


class _Here(Executor):
    """Runs each task at once, in this process."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **named))
        return future


def _pool(contests: Sequence[Contest], jobs: int) -> Executor:
    """The executor that makes the plans. Its processes are forks, since programs and costs hold functions, which cannot
    be sent."""
    global _HELD
    _HELD = contests
    if jobs == 1:
        return _Here()
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), initializer=_prepared)


class _NoTerminal(io.TextIOWrapper):
    """Standard error of a process that plans: it passes warnings and hides progress."""

    def isatty(self) -> bool:
        return False


def _prepared() -> None:
    """Ignore Ctrl-C between tasks: it is the parent's, who asks for no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.stderr is not None:
        sys.stderr = _NoTerminal(sys.stderr.buffer, line_buffering=True)


def _interruptible(function: Callable[..., Any], *args: Any) -> Any:
    """A task that Ctrl-C ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return function(*args)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _submitted(pool: Executor, number: int, asked: Cell | None, budgets: tuple[Budget, ...]) -> Future[Any]:
    """A task for the pool: the ground of a contest, or a cell. If its processes have ended, the error is the task's."""
    task = (ground, number, budgets) if asked is None else (cell_of, number, asked)
    try:
        return pool.submit(*task) if isinstance(pool, _Here) else pool.submit(_interruptible, *task)  # type: ignore[arg-type]
    except BrokenProcessPool as error:
        future: Future[Any] = Future()
        future.set_exception(error)
        return future


def _answer(future: Future[Any], failed: Callable[[str], Any]) -> Any:
    try:
        return future.result()
    except BrokenProcessPool:
        return failed("the process that planned it has ended: was it killed for want of memory? (--jobs 1)")


def ground(number: int, budgets: tuple[Budget, ...]) -> Ground:
    """The ground of a contest, with the bounds at these budgets."""
    contest = _HELD[number]
    try:
        free = arrange(contest.programs, WHOLE, contest.costs, ENDLESS, proof=False)
        seconds = simulate(free.schedules[contest.name], contest.costs).seconds
        train = next(p for p in contest.programs if p.name == contest.name)
        with suppress(NoSolver):
            bound = Family(train, replace(contest.costs, host=contest.host))
            limits = {b: bound.closest(b) for b in (_bytes(budget, free.arena) for budget in budgets)}
            known = {b: limit.seconds for b, limit in limits.items() if limit is not None}
            return Ground(free.arena, seconds, bound.least(), known)
        return Ground(free.arena, seconds)
    except Exception as error:
        return Ground(why=_said(error))


def cell_of(number: int, asked: Cell) -> Cell:
    """The cell of a policy within a budget, as far as it was `asked`."""
    contest, began = _HELD[number], time.process_time()
    told: dict[str, Any]
    try:
        found = arrange(contest.programs, asked.policy, contest.costs, asked.budget, contest.host)
        schedule = found.schedules[contest.name]
        moved = copied(schedule.instructions, schedule)
        told = dict(
            peak=found.arena, seconds=simulate(schedule, contest.costs).seconds,
            moved=moved["offload_bytes"] + moved["prefetch_bytes"], host=found.off_device,
            again=sum(isinstance(x, Compute) and x.run > 0 for x in schedule.instructions),
            bound=None if schedule.plan.beside else asked.bound,  # it is of plans whose ops the device runs
        )  # fmt: skip
    except BudgetError as refused:
        told = dict(why=str(refused), smallest=refused.smallest, host_refused=refused.host)
    except Exception as error:
        told = dict(why=_said(error), failed=True)
    return Cell(**{**vars(asked), **told, "planning": time.process_time() - began})


def _asked(found: Ground, budgets: Sequence[Budget], policies: Sequence[str]) -> Iterator[Cell]:
    for budget in budgets:
        nbytes, part = _bytes(budget, found.whole or 0), None if isinstance(budget, int) else budget
        for policy in policies:
            yield Cell(policy, nbytes, part, bound=found.bounds.get(nbytes))


def _bytes(budget: Budget, whole: int) -> int:
    return budget if isinstance(budget, int) else int(whole * budget)


def _failed(asked: Cell, why: str) -> Cell:
    return Cell(asked.policy, asked.budget, asked.part, why=why, failed=True)


def _said(error: Exception) -> str:
    """The error's message; of one that no user should see, its type, too."""
    return str(error) if isinstance(error, BadInput | Failed) else f"{type(error).__name__}: {error}"
