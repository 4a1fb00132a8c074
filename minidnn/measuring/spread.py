"""The median of repeated measurements, and the interval that the true median lies in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Spread:
    """A median with its 95 % confidence interval, in the unit of what was measured."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of independent measurements, whatever their distribution: the interval lies between two order statistics
        (Conover, Practical Nonparametric Statistics, section 3.2). Fewer than six measurements cannot reach 95 %:
        then it is the smallest and the largest."""
        ordered, count = sorted(values), len(values)
        cut = 0  # measurements that the interval leaves out on each side
        below = 1.0  # of the 2 ** count ways to lie about the median, those with at most `cut` below it
        while below + comb(count, cut + 1) <= (1 - CONFIDENCE) / 2 * 2**count:
            cut += 1
            below += comb(count, cut)
        return cls(median(ordered), ordered[cut], ordered[-1 - cut])

    def overlaps(self, other: Spread) -> bool:
        """Whether the measurements are too noisy to say which of the two is smaller."""
        return self.low <= other.high and other.low <= self.high
