"""The search for the largest size in a series (of batches or depths) whose plan keeps a budget.

Planning a deep net takes seconds, so few sizes are tried. A plan's bytes grow about linearly with the batch and with
the depth. So the search draws a line through the bytes of earlier plans and tries the size at which it meets the
budget. It ends when the largest size that fits and the smallest that does not are neighbours. Each try makes a whole
plan, lowers it and places it. Only the result's plan is proved, but that always is.

Placement is greedy, so a size may fit although a smaller one does not. The result is therefore the largest *tried* size
that fits, with the next larger tried size, which does not.

Where ops run in parts (memory/parts/), bytes depend on the divisors of the batch: 64 may fit in 8 parts where 51 does
not fit in 3. Under NAME@N only multiples of N are tried: all of them can run in N parts, and their bytes grow with the
batch. Under a policy that chooses parts itself, rounder batches are tried above the largest that was found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from minidnn.costs import Costs
from minidnn.jobs.series import Series
from minidnn.memory.joint.variants import least_budget
from minidnn.memory.planning import unproved
from minidnn.memory.policies import parts
from minidnn.memory.proof.verify import verify_all
from minidnn.memory.schedule import Arrangement
from minidnn.program import Program
from minidnn.results.budgets import Excluded

ROUNDER = 4, 8, 16, 32  # shares of a batch: multiples of a power of two below each are tried above it

Make = Callable[[int], Sequence[Program]]  # the programs of a size


@dataclass(frozen=True)
class Try:
    """One plan that was made."""

    size: int
    budget: int  # bytes that the policy was given; 0: its leanest plan was asked for, only to estimate from
    arena: int  # bytes on the device
    host: int  # bytes on the host
    fits: bool
    seconds: float


@dataclass(eq=False)
class Largest:
    """The result of a search."""

    policy: str
    size: int | None  # None: no size that was tried fits
    arrangement: Arrangement | None  # that of `size`, proved
    refused: Try | None  # the smallest size above `size` that was tried and does not fit; None: there is none
    tried: tuple[Try, ...]
    seconds: float  # of the whole search
    ended: bool  # the time was up: sizes between `size` and `refused` (or above `size`) were not tried
    multiple: int  # only multiples of this many were tried


def largest(
    make: Make,
    series: Series,
    policy: str,
    costs: Costs,
    budget: int,
    probes: tuple[int, int],
    host_budget: int | None = None,
    seconds: float = inf,
    watch: Callable[[Try], None] = lambda _: None,
) -> Largest:
    """The largest size of `series` at which the policy needs at most `budget` bytes (and `host_budget` on the host).

    make: the programs of a size. probes: two sizes whose leanest plans are made first, to estimate from.
    seconds: a time limit; when it is reached, the current plan is finished and no further size is tried.
    watch: called with each Try.
    Raises ScheduleError if the result's schedule cannot be proved (a bug), NoSuchPolicy for an unknown policy.
    """
    return _Search(make, series, policy, costs, budget, host_budget, seconds, watch).run(probes)


def excluded(
    make: Make, series: Series, costs: Costs, budget: int, found: int | None, what: str, tell: Callable[[int], None]
) -> Excluded | None:
    """The smallest size that the bound is found to exclude; None if it excludes no size of the series.

    what:  "batch", "size", "tokens" or "depth"
    found: the largest size that a policy places, or None. The search begins there, with growing steps, and then bisects
    tell:  called with each size before the bound is asked

    The bound does not exclude the next smaller size of the series. Raises linear.NoSolver without the package highspy.
    """

    def least(number: int) -> int:
        tell(series[number])
        return least_budget(make(series[number]), costs, enough=budget, parts=not series.batches)

    low, high, stride, needs = -1, series.top + 1, 1, 0
    start = 0 if found is None else series.number(found)  # which is excluded itself if it fits in parts only
    while high - low > 1:
        if low < 0 and high > series.top:
            number = start
        elif high > series.top:
            number = min(low + stride, series.top)
        else:
            number = (low + high) // 2
        asked = least(number)
        if asked > budget:
            high, needs = number, asked
        else:
            low, stride = number, 2 * stride
    return None if high > series.top else Excluded(**{what: series[high]}, least_bytes=needs)


class _Search:
    def __init__(
        self,
        make: Make,
        series: Series,
        policy: str,
        costs: Costs,
        budget: int,
        host_budget: int | None,
        seconds: float,
        watch: Callable[[Try], None],
    ) -> None:
        self.make, self.series, self.policy, self.costs = make, series, policy, replace(costs, host=host_budget)
        self.budget, self.host_budget, self.seconds, self.watch = budget, host_budget, seconds, watch
        self.began = time.monotonic()
        self.tried: list[Try] = []
        self.size: int | None = None  # the largest that was tried and fits
        self.best: Arrangement | None = None  # that of this size
        self.ended = False  # the time was up before all was tried

    def run(self, probes: tuple[int, int]) -> Largest:
        count = parts(self.policy) if self.series.batches else 1
        if count is not None and count > 1:
            self.series = self.series.multiples(count)
        if self.series.top < 0:
            return self.result()
        for size in dict.fromkeys(self.series[self.series.number(size)] for size in probes):
            if not self.time_is_up:
                self.plan(size, 0)
        self.within(self.series)
        if count is None and self.size is not None:
            for step in [1 << (self.size // share).bit_length() - 1 for share in ROUNDER if share <= self.size]:
                self.within(self.series.multiples(step))
            self.within(self.series)
        return self.result()

    def within(self, series: Series) -> None:
        """Look for a size of this series above the largest found, until it and a size that does not fit are neighbours
        in the series."""
        top = series.top
        low = -1 if self.size is None or self.size < series.first else series.number(self.size)
        high = top + 1  # size numbers: the largest tried that fits, the smallest tried above it
        # stride: the least distance of the next try from the last, while only one of `low` and `high` was tried.
        # wide: how many tries in a row left more than half of the sizes in between.
        stride, wide = 0, 0
        while high - low > 1 and not self.time_is_up:
            guess, width = self.estimate(series), high - low
            if low >= 0 and high > top:
                stride = stride * 2 or max(1, low // 64)
                guess = max(guess, low + stride)
            elif low < 0 and high <= top:
                stride = stride * 2 or max(1, high // 64)
                guess = min(guess, high - stride)
            elif wide > 1:
                guess, wide = (low + high) // 2, 0
            number = min(max(guess, low + 1), high - 1)
            fits = self.plan(series[number], self.budget)
            low, high = (number, high) if fits else (low, number)
            if low >= 0 and high <= top:
                wide = wide + 1 if high - low > width // 2 else 0
        self.ended |= high - low > 1

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def time_is_up(self) -> bool:
        return self.elapsed > self.seconds

    def plan(self, size: int, told: int) -> bool:
        """Plan `size` with a budget of `told` bytes; whether the result keeps the search's budgets."""
        if known := next((t for t in self.tried if t.size == size and t.budget == told), None):
            return known.fits
        began = self.elapsed
        schedules = unproved(self.make(size), self.policy, self.costs, told)
        result = Arrangement.of(self.policy, schedules, self.budget)
        host = result.off_device
        fits = result.arena <= self.budget and (self.host_budget is None or host <= self.host_budget)
        done = Try(size, told, result.arena, host, fits, self.elapsed - began)
        self.tried.append(done)
        self.watch(done)
        if fits and told:
            self.size, self.best = size, result
        return fits

    def estimate(self, series: Series) -> int:
        """The number of the size of `series` that would just fit, by a line through the bytes of two earlier plans.

        These are the last two under pressure: plans that were asked to be lean, or that did not fit. With a host budget
        there are two lines, of bytes on the device and of bytes on the host; the smaller size counts."""
        pressed = [t for t in self.tried if not t.budget or not t.fits]
        limits = [(self.budget, [t.arena for t in pressed])]
        if self.host_budget is not None:
            limits.append((self.host_budget, [t.host for t in pressed]))
        last = pressed[-1] if pressed else Try(series[0], 0, 0, 0, True, 0.0)
        result = [self.meets(limit, [t.size for t in pressed], taken) for limit, taken in limits]
        return series.number(min((size for size in result if size is not None), default=2 * last.size))

    @staticmethod
    def meets(limit: int, sizes: Sequence[int], taken: Sequence[int]) -> float | None:
        """The size at which the line through the last plan, and the plan before it of another size, meets `limit`.

        None if there is no such plan, or if the line does not rise."""
        before = next((i for i in range(len(sizes) - 2, -1, -1) if sizes[i] != sizes[-1]), None)
        if before is None or (taken[-1] - taken[before]) * (sizes[-1] - sizes[before]) <= 0:
            return None
        slope = (taken[-1] - taken[before]) / (sizes[-1] - sizes[before])
        return sizes[-1] + (limit - taken[-1]) / slope

    def result(self) -> Largest:
        above = [t for t in self.tried if t.budget and not t.fits and (self.size is None or t.size > self.size)]
        if self.best is not None:
            verify_all(self.best.schedules.values(), self.budget)
        return Largest(
            self.policy, self.size, self.best, min(above, key=lambda t: t.size, default=None), tuple(self.tried),
            self.elapsed, self.ended, self.series.step if self.series.batches else 1,
        )  # fmt: skip
