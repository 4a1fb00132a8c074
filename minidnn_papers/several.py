"""Several GPUs of a paper: one rank's plan and that of N, each simulated with what is between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minidnn.costs import Costs
from minidnn.costs.net import Network, among
from minidnn.jobs.ranks import Iteration, iteration
from minidnn.memory.planning import arrange
from minidnn.program import Program

MOST = 1 << 62  # bytes: more than any plan needs


@dataclass(frozen=True)
class Together:
    """One rank's iteration alone, and among all."""

    alone: Iteration
    ranks: Iteration

    @property
    def efficiency(self) -> float:
        return self.ranks.efficiency(self.alone)

    @property
    def speed_up(self) -> float:
        return self.ranks.ranks * self.efficiency


def together(
    make: Callable[[int], Sequence[Program]],
    policy: str,
    costs: Costs,
    link: Network,
    ranks: int,
    batch: int,
    budget: int = MOST,
) -> Together:
    """make: the TRAIN program of so many ranks. batch: samples of each. Raises BudgetError."""

    def of(count: int) -> Iteration:
        linked = among(costs, link)
        return iteration(arrange(make(count), policy, linked, budget), ["TRAIN"], count, batch, linked)

    return Together(of(1), of(ranks))
