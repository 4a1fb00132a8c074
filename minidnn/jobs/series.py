"""A series of sizes (batches, sides of images, depths) that a search chooses from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor, lcm


@dataclass(frozen=True)
class Series:
    """The sizes to choose from: `first`, then every `step`, up to `last`. A size's number counts from 0.

    batches: the sizes are batches, whose divisors decide in how many parts ops can run (memory/parts/)
    """

    first: int
    step: int
    last: int
    batches: bool = False

    @property
    def top(self) -> int:
        """The number of the last size; -1: there is none."""
        return (self.last - self.first) // self.step

    def __getitem__(self, number: int) -> int:
        return self.first + number * self.step

    def number(self, size: float) -> int:
        """The number of the largest size that is at most `size`; 0 if all sizes are larger."""
        if size >= self.last:
            return self.top
        return max(0, floor((size - self.first) / self.step))

    def multiples(self, of: int) -> Series:
        """The sizes that are multiples of `of` and of the step."""
        step = lcm(self.step, of)
        return replace(self, first=-(-self.first // step) * step, step=step)
