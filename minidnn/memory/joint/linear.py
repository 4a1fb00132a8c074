"""Linear and integer programs: written row by row, then solved by HiGHS as often as their bounds change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

INF = float("inf")
MB, MS = 1e6, 1e-3  # bytes and seconds of the units that programs of memory count in, so that numbers are near 1
# HiGHS's searches for solutions within a search for whole numbers; older versions know no such options
SOLUTIONS = "mip_heuristic_run_rins", "mip_heuristic_run_rens", "mip_heuristic_run_root_reduced_cost"
Terms = Iterable[tuple[int, float]]  # (variable, coefficient)


class NoSolver(Exception):
    """The package highspy is not there. The message says how to get it."""


class Unsolved(Exception):
    """HiGHS gave up. The message is its status."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The solution of a program.

    value: float64 (variables,)
    bound: no solution is below it. Of a linear program it is the value of the dual solution, computed here from the
           rows, so it does not depend on HiGHS's tolerances. Of an integer program it is what HiGHS says.
    duals: float64 (rows,), the change of the objective per unit of a row's bound; empty for an integer program
    """

    value: np.ndarray
    bound: float
    duals: np.ndarray


class Rows:
    """A program to be minimised: variables with costs and bounds, and rows low <= sum of terms <= high."""

    large: float  # more than any running sum

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.whole: list[int] = []  # variables that an integer program wants whole
        self.columns: list[int] = []
        self.factor: list[float] = []
        self.start: list[int] = [0]
        self.row_low: list[float] = []
        self.row_high: list[float] = []

    def var(self, cost: float = 0.0, low: float = 0.0, high: float = INF, whole: bool = False) -> int:
        """A new variable's number."""
        number = len(self.cost)
        self.cost.append(cost)
        self.low.append(low)
        self.high.append(high)
        if whole:
            self.whole.append(number)
        return number

    def row(self, terms: Terms, low: float = -INF, high: float = INF) -> int:
        """A new row's number."""
        for variable, factor in terms:
            self.columns.append(variable)
            self.factor.append(factor)
        self.start.append(len(self.columns))
        self.row_low.append(low)
        self.row_high.append(high)
        return len(self.row_low) - 1

    def sum(self, before: int | None, terms: Sequence[tuple[int, float]], more: float = 0.0) -> int:
        """A running sum: the one before, these terms and `more`. It stays within `large`."""
        total = self.var(low=-self.large, high=self.large)
        minus = [(v, -factor) for v, factor in terms]
        self.row([(total, 1), *([] if before is None else [(before, -1.0)]), *minus], more, more)
        return total


class Solver:
    """A program in HiGHS. It solves on one thread and with limits on its work, never on time, so that equal programs
    have equal answers."""

    def __init__(self, rows: Rows) -> None:
        """Raises NoSolver without the package highspy."""
        try:
            import highspy
        except ImportError as error:
            raise NoSolver(f"needs the package highspy: pip install highspy ({error})") from None
        self.api = highspy
        self.cost, self.low, self.high = (np.array(a, float) for a in (rows.cost, rows.low, rows.high))
        self.row_low, self.row_high = np.array(rows.row_low, float), np.array(rows.row_high, float)
        self.columns, self.start = np.array(rows.columns, np.int32), np.array(rows.start, np.int32)
        self.factor, self.whole = np.array(rows.factor, float), rows.whole
        problem = highspy.HighsLp()
        problem.num_col_, problem.num_row_ = len(self.cost), len(self.row_low)
        problem.col_cost_, problem.col_lower_, problem.col_upper_ = self.cost, self.low, self.high
        problem.row_lower_, problem.row_upper_ = self.row_low, self.row_high
        problem.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        problem.a_matrix_.start_, problem.a_matrix_.index_ = self.start, self.columns
        problem.a_matrix_.value_ = self.factor
        self.highs = highspy.Highs()
        self._set(output_flag=False, threads=1, solver="simplex")
        self.highs.passModel(problem)

    def _set(self, **options: Any) -> None:
        for name, value in options.items():
            self.highs.setOptionValue(name, value)

    def limit(self, row: int, high: float) -> None:
        """Change a row's upper bound. The next `least` starts from the last solution."""
        self.row_high[row] = high
        self.highs.changeRowBounds(row, float(self.row_low[row]), float(high))

    def cap(self, variable: int, high: float) -> None:
        """Change a variable's upper bound. The next `least` starts from the last solution."""
        if self.high[variable] != high:
            self.high[variable] = high
            self.highs.changeColBounds(variable, float(self.low[variable]), float(high))

    def only(self, variable: int, high: float) -> None:
        """Minimise this variable, with this upper bound, and nothing else."""
        self.cost = np.zeros_like(self.cost)
        self.cost[variable] = 1.0
        everything = np.arange(len(self.cost), dtype=np.int32)
        self.highs.changeColsCost(len(everything), everything, self.cost)
        self.cap(variable, high)

    def least(self) -> Answer | None:
        """The solution of the linear program; None if it has none. Raises Unsolved."""
        self.highs.run()
        status = self._status()
        if status is None:
            return None
        if status != self.api.HighsModelStatus.kOptimal:
            raise Unsolved(self.highs.modelStatusToString(status))
        solution = self.highs.getSolution()
        duals = np.array(solution.row_dual)
        return Answer(np.array(solution.col_value), self._dual_value(duals), duals)

    def least_whole(self, nodes: int, gap: float) -> Answer | None:
        """The best solution found with whole numbers where the program wants them; None if there is none. The last
        call of a Solver.

        nodes: of the search, at most; gap: it also ends when the solution is so close to its bound, as a part of it.
        Raises Unsolved if the search ends before it has found any.
        """
        status = self._search(nodes, gap)
        if status is None:
            return None
        info = self.highs.getInfo()
        if info.primal_solution_status != self.api.SolutionStatus.kSolutionStatusFeasible:
            raise Unsolved(self.highs.modelStatusToString(status))
        return Answer(np.array(self.highs.getSolution().col_value), info.mip_dual_bound, np.empty(0))

    def bound_whole(self, nodes: int, gap: float) -> float | None:
        """A lower bound on all solutions with whole numbers where the program wants them; None if there is none. The
        last call of a Solver, with the arguments of `least_whole`.

        The search looks for no good solution, which took most of its time, and it does not begin anew with what it has
        learned: both do little for the bound. Raises Unsolved if the search ends before it has found any."""
        self._set(**dict.fromkeys(SOLUTIONS, False), mip_allow_restart=False)
        status = self._search(nodes, gap)
        if status is None:
            return None
        bound = self.highs.getInfo().mip_dual_bound
        if not np.isfinite(bound):
            raise Unsolved(self.highs.modelStatusToString(status))
        return float(bound)

    def _search(self, nodes: int, gap: float) -> Any:
        """HiGHS's status after a search for whole numbers; None if the program has no solution."""
        kinds = self.api.HighsVarType.kInteger
        for variable in self.whole:
            self.highs.changeColIntegrality(variable, kinds)
        self._set(solver="choose", mip_max_nodes=nodes, mip_rel_gap=gap)
        self.highs.run()
        return self._status()

    def _status(self) -> Any:
        """HiGHS's status after a run; None if the program has no solution."""
        status = self.highs.getModelStatus()
        none = self.api.HighsModelStatus.kInfeasible, self.api.HighsModelStatus.kUnboundedOrInfeasible
        return None if status in none else status

    def _dual_value(self, duals: np.ndarray) -> float:
        """The value of a dual solution. It is a lower bound on the program's optimum, whatever the duals are (Neumaier
        and Shcherbina, "Safe bounds in linear and mixed-integer linear programming", 2004, section 3)."""
        nowhere = np.where(duals > 0, np.isinf(self.row_low), np.isinf(self.row_high))
        duals = np.where(nowhere, 0.0, duals)  # a rounding error's sign would make the value infinite
        products = self.factor * np.repeat(duals, np.diff(self.start))
        reduced = self.cost - np.bincount(self.columns, products, len(self.cost))
        return _least(duals, self.row_low, self.row_high) + _least(reduced, self.low, self.high)


def _least(factor: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """The least value of sum(factor * x) over low <= x <= high."""
    at = np.where(factor > 0, low, high)
    used = factor != 0
    return float(np.sum(factor[used] * at[used]))
