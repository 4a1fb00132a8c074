"""The largest of a series of sizes, batches or depths, whose plan keeps a budget.

Planning a deep net takes seconds, so few sizes are tried. Bytes grow about linearly with a batch and with a depth:
where a policy at its leanest would meet the budget is estimated from what it took before, and corrected by each try;
then sizes on both sides are tried until they are neighbours. A try is a whole plan, lowered and placed. Only the
result's is proved, but that always is.

Placement is greedy, so a size may fit though a smaller one did not: what is found is the largest *tried* that fits,
with the size above it that was tried and did not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, inf

from minidnn.costs import Costs
from minidnn.memory.planning import unproved
from minidnn.memory.proof.verify import verify_all
from minidnn.memory.schedule import Arrangement
from minidnn.program import Program

Make = Callable[[int], Sequence[Program]]  # the programs of a size


@dataclass(frozen=True)
class Series:
    """The sizes that there are: `first`, and then every `step`, up to `last`."""

    first: int
    step: int
    last: int

    @property
    def top(self) -> int:
        """The number of the last, from 0."""
        return (self.last - self.first) // self.step

    def __getitem__(self, number: int) -> int:
        return self.first + number * self.step

    def number(self, size: float) -> int:
        """Of the largest that is no larger than `size`; of the first, or the last, where that is none of these."""
        if size >= self.last:
            return self.top
        return max(0, floor((size - self.first) / self.step))


@dataclass(frozen=True)
class Try:
    """One plan. `budget` is what the policy was told; 0 asks for its leanest plan, which is to estimate with."""

    size: int
    budget: int
    arena: int  # bytes on the device
    host: int  # bytes on the host
    fits: bool
    seconds: float


@dataclass(eq=False)
class Largest:
    """What a search came to. `size` is None where nothing that was tried fits; `ended`: it ran out of time, so that
    sizes between `size` and `refused` are untried (or nothing above `size` is known, where `refused` is None)."""

    policy: str
    size: int | None
    arrangement: Arrangement | None  # proved
    refused: Try | None
    tried: tuple[Try, ...]
    seconds: float
    ended: bool


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
    """The largest size of `series` whose programs, by `make`, the policy places within `budget` bytes (and the host's).

    probes: two sizes whose leanest plans are made first, to estimate from.
    seconds: after so many no further size is tried; a plan that is being made is finished. `watch` hears of each try.
    Raises ScheduleError where the result's schedule cannot be proved (a bug), NoSuchPolicy for an unknown policy.
    """
    return _Search(make, series, policy, costs, budget, host_budget, seconds, watch).run(probes)


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
        self.make, self.series, self.policy, self.costs = make, series, policy, costs
        self.budget, self.host_budget, self.seconds, self.watch = budget, host_budget, seconds, watch
        self.began = time.monotonic()
        self.tried: list[Try] = []
        self.best: Arrangement | None = None  # of the largest that fits

    def run(self, probes: tuple[int, int]) -> Largest:
        top = self.series.top
        low, high = -1, top + 1  # numbers of sizes: of the largest that fits, of the smallest above it that does not
        for size in dict.fromkeys(probes):
            if self.time_is_up:
                break
            self.plan(size, 0)
        stride, wide = 0, 0  # how far from the last; how often an estimate left more than half of the sizes between
        while high - low > 1 and not self.time_is_up:
            guess, width = self.estimate(), high - low
            if low >= 0 and high > top:
                stride = stride * 2 or max(1, low // 64)
                guess = max(guess, low + stride)
            elif low < 0 and high <= top:
                stride = stride * 2 or max(1, high // 64)
                guess = min(guess, high - stride)
            elif wide > 1:
                guess, wide = (low + high) // 2, 0
            number = min(max(guess, low + 1), high - 1)
            fits = self.plan(self.series[number], self.budget)
            low, high = (number, high) if fits else (low, number)
            if low >= 0 and high <= top:
                wide = wide + 1 if high - low > width // 2 else 0
        return self.result(low, high)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def time_is_up(self) -> bool:
        return self.elapsed > self.seconds

    def plan(self, size: int, told: int) -> bool:
        """Whether a size fits, if its policy is told so many bytes."""
        began = self.elapsed
        schedules = unproved(self.make(size), self.policy, self.costs, told)
        found = Arrangement.of(self.policy, schedules, self.budget)
        host = found.off_device
        fits = found.arena <= self.budget and (self.host_budget is None or host <= self.host_budget)
        done = Try(size, told, found.arena, host, fits, self.elapsed - began)
        self.tried.append(done)
        self.watch(done)
        if fits and told:
            self.best = found
        return fits

    def estimate(self) -> int:
        """The number of the size that would just fit: on the line through the last two plans made under pressure, on
        the device's bytes or, where these tell more, on the host's."""
        pressed = [t for t in self.tried if not t.budget or not t.fits]
        limits = [(self.budget, [t.arena for t in pressed])]
        if self.host_budget is not None:
            limits.append((self.host_budget, [t.host for t in pressed]))
        last = pressed[-1] if pressed else Try(self.series[0], 0, 0, 0, True, 0.0)
        found = [self.meets(limit, [t.size for t in pressed], taken) for limit, taken in limits]
        return self.series.number(min((size for size in found if size is not None), default=2 * last.size))

    @staticmethod
    def meets(limit: int, sizes: Sequence[int], taken: Sequence[int]) -> float | None:
        """Where the line through the last plan and the one before it of another size meets the limit."""
        before = next((i for i in range(len(sizes) - 2, -1, -1) if sizes[i] != sizes[-1]), None)
        if before is None or (taken[-1] - taken[before]) * (sizes[-1] - sizes[before]) <= 0:
            return None
        slope = (taken[-1] - taken[before]) / (sizes[-1] - sizes[before])
        return sizes[-1] + (limit - taken[-1]) / slope

    def result(self, low: int, high: int) -> Largest:
        refused = next((t for t in reversed(self.tried) if t.budget and t.size == self.series[high]), None)
        size = self.series[low] if low >= 0 else None
        if self.best is not None:
            verify_all(self.best.schedules.values(), self.budget)
        ended = high - low > 1
        return Largest(self.policy, size, self.best, refused, tuple(self.tried), self.elapsed, ended)
