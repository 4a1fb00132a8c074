"""The median of repeated measurements, and the confidence interval of the true median."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import comb
from statistics import median

CONFIDENCE = 0.95
FEWEST = 6  # measurements; the interval of fewer holds the true median less often than that


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

    @classmethod
    def in_turn(cls, values: Sequence[float]) -> Spread:
        """The spread of measurements that were made one after another, when noise lasts longer than one of them.

        Such measurements are not independent. The medians of a few stretches of neighbours nearly are, so the ends are
        those of these medians (the method of batch means)."""
        count = len(values)
        if count < FEWEST:
            return cls.of(values)
        cuts = [count * i // FEWEST for i in range(FEWEST + 1)]
        stretches = cls.of([median(values[first:last]) for first, last in pairwise(cuts)])
        return cls(median(values), stretches.low, stretches.high)

    def overlaps(self, other: Spread) -> bool:
        """Whether the measurements are too noisy to say which of the two is smaller."""
        return self.low <= other.high and other.low <= self.high
