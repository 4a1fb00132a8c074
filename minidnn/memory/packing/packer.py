"""Packing by all means: the quickest greedy orders, then the search, then the other orders.

All limits are numbers of steps, never time, so equal problems have equal answers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import numpy as np

from minidnn.memory.packing.apart import small_apart
from minidnn.memory.packing.greedy import solutions
from minidnn.memory.packing.problem import Problem, Solution
from minidnn.memory.packing.tight import ENDLESS, Impossible, Work, missing, tight

QUICK = 3  # greedy orders that are tried before the search: by start, and by size, which wins on deep nets
SEARCHED = 4000  # buffers at most: the search takes quadratic time. Of more, only the large ones are searched.
FEW = 2  # steps for each of so many buffers
# Steps of the search. Each takes time in proportion to the buffers. Where a problem can be solved, one step for each
# buffer mostly suffices.
LEAST = 16  # for each buffer
WORK = 20_000_000  # steps times buffers
# `lowest`: the work of the first round for each capacity; how many times more the next round has; and the part of the
# load below which capacities are not told apart.
FIRST, LONGER, FINE = 1_000_000, 8, 0.005
# Where the search gives up, it goes on with so much more capacity, as a part of it.
LOOSER = (0.0, 0.0025, 0.01, 0.03, 0.07)

Search = Callable[[Problem, int, int, Work | None], "np.ndarray | None"]


def pack(
    problem: Problem,
    enough: int = 0,
    steps: int | None = None,
    quick: bool = False,
    tell: Callable[[int], object] = lambda capacity: None,
) -> Solution:
    """The lowest solution found. It ends with the first one as low as `enough` or as the load.

    steps: of the search, for each capacity that it tries; None: a number that takes about a tenth of a second
    quick: try no other capacity than `enough`. Else the solution is as low as without `enough`, or as low as that.
    tell:  called with each capacity in bytes before it is searched

    Without a C compiler (`tight.missing`) there is no search. Equal calls give equal solutions.
    """
    target = max(problem.load, enough)
    greedy = solutions(problem)
    best = _lowest(itertools.islice(greedy, QUICK), target)
    if best.height > target and missing() is None:
        looser = [] if quick else [int(problem.load * (1 + more)) for more in LOOSER]
        best = _searched(problem, list(dict.fromkeys([target, *looser])), steps, best, tell)
    return best if best.height <= target else _lowest(itertools.chain([best], greedy), target)


def lowest(
    problem: Problem,
    work: int,
    enough: int = 0,
    tell: Callable[[int, Solution], object] = lambda capacity, best: None,
) -> Solution:
    """The lowest solution found with so much work of the search (`tight.Work`). It ends with the first one as low as
    `enough` or as the load.

    In rounds, each with LONGER times the work of the one before: the search tries to reach the target, and then halves
    the gap between the lowest solution and the largest capacity at which it gave up.

    tell: called with each capacity in bytes before it is searched, and with the lowest solution so far

    Without a C compiler (`tight.missing`) there is no search. Equal calls give equal solutions.
    """
    target = max(problem.load, enough)
    best = _lowest(solutions(problem), target)
    if best.height <= target or missing() is not None:
        return best
    unit = math.gcd(*problem.size.tolist())  # heights are multiples of it
    near, left, each = max(unit, int(FINE * problem.load)), Work(work), FIRST
    while best.height > target and left.left.value > 0:
        below, capacity = target - unit, target  # below: where nothing was found in this round
        while best.height - below > near and left.left.value > 0:
            tell(capacity, best)
            found = _within(problem, capacity, left, each)
            if found is None:
                below = capacity
            else:
                best = found
            capacity = below + max(unit, (best.height - below) // 2 // unit * unit)
        each *= LONGER
    return best


def _within(problem: Problem, capacity: int, left: Work, each: int) -> Solution | None:
    """A solution within the capacity, found by one of the searches with so much of the work that is left."""
    for search, how in _searches(problem):
        part = left.part(each)
        with suppress(Impossible):
            offset = search(problem, capacity, ENDLESS, part)
            if offset is not None:
                return Solution(offset, int(np.max(offset + problem.size)), how)
        left.back(part)
    return None


def _searches(problem: Problem) -> list[tuple[Search, str]]:
    """The searches that the problem is small enough for."""
    apart: list[tuple[Search, str]] = [(small_apart, "search/small_apart")]
    return [(tight, "search"), *apart] if len(problem) <= SEARCHED else apart


def _lowest(solutions: Iterable[Solution], target: int) -> Solution:
    """The lowest of these solutions; the first that is as low as the target."""
    best: Solution | None = None
    for solution in solutions:
        if best is None or solution.height < best.height:
            best = solution
        if best.height <= target:
            break
    assert best is not None
    return best


def _searched(
    problem: Problem, capacities: Sequence[int], steps: int | None, best: Solution, tell: Callable[[int], object]
) -> Solution:
    """The search's solution at the first capacity where it finds one lower than `best`; else `best`."""
    searches = _searches(problem)
    if steps is None:
        steps = max(LEAST * len(problem), WORK // len(problem)) if len(problem) <= SEARCHED else FEW * len(problem)
    for capacity in capacities:
        if capacity >= best.height:
            break
        tell(capacity)
        with suppress(Impossible):
            for search, how in searches:
                offset = search(problem, capacity, steps, None)
                if offset is not None:
                    return Solution(offset, int(np.max(offset + problem.size)), how)
    return best
