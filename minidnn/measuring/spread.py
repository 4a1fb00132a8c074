"""The median of repeated measurements, and the confidence interval of the true median."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Spread:
    """A median with its 95 % confidence interval, in the unit of the measurements."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of independent measurements of any distribution.

        The interval's ends are two order statistics (Conover, Practical Nonparametric Statistics, section 3.2). Fewer
        than six measurements cannot reach 95 %: then the ends are the smallest and the largest one."""
        ordered, count = sorted(values), len(values)
        cut = 0  # the number of measurements outside the interval on each side
        below = 1.0  # of the 2 ** count ways to lie about the median, those with at most `cut` below it
        while below + comb(count, cut + 1) <= (1 - CONFIDENCE) / 2 * 2**count:
            cut += 1
            below += comb(count, cut)
        return cls(median(ordered), ordered[cut], ordered[-1 - cut])

    def overlaps(self, other: Spread) -> bool:
        """Whether the measurements are too noisy to say which of the two is smaller."""
        return self.low <= other.high and other.low <= self.high
