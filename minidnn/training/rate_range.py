"""The learning-rate range test: the rate grows from step to step, and the loss shows which rates train.

It is that of Smith ("Cyclical Learning Rates for Training Neural Networks", WACV 2017, section 3.3), whose rate grows
linearly. Here each rate is the same multiple of the one before, so that every power of ten has as many steps. The rate
to train with is the one by which the smoothed loss has made most of its fall (`SHARE`). The rate of the least loss is a
worse choice: it is close to where training diverges, or, if the loss is nearly 0 before, an accident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidnn.errors import InvalidInput
from minidnn.schema import SolverParameter
from minidnn.training.divergence import Diverged
from minidnn.training.solver import Solver

LOWEST, HIGHEST, ITERATIONS = 1e-6, 10.0, 200
FEWEST = 20  # iterations: fewer say nothing
SHARE = 0.8  # of the fall, which the suggested rate has made
NEIGHBOURS = 40  # a point is smoothed with this part of all points to either side of it
NOISE = 3.0  # times what single losses differ from the smoothed ones: so far has the loss to fall

# What a run of its own would do beside its steps.
QUIET: dict[str, Any] = {"keep_best": None, "patience": None, "log": (), "tensorboard": None, "epochs": None,
                         "test_epochs": None, "display_epochs": None, "snapshot_epochs": None}  # fmt: skip


@dataclass(frozen=True)
class Found:
    """
    smoothed: the loss of each step, by its neighbours
    least:    the step at which that is least; None: it never falls by more than its noise
    fallen:   the first step by which it has made `SHARE` of the fall; None likewise
    """

    smoothed: tuple[float, ...]
    least: int | None = None
    fallen: int | None = None


def ranging(p: SolverParameter, lowest: float, highest: float, iterations: int) -> SolverParameter:
    """The solver of a range test: this one with a rate that grows, and without tests, snapshots and logs.

    Raises InvalidInput for a range that is none."""
    if not 0 < lowest < highest < float("inf"):
        raise InvalidInput(f"rates from {lowest:g} to {highest:g}: the first has to be above 0, the last above that")
    if iterations < FEWEST:
        raise InvalidInput(f"{iterations} iterations: a range test takes at least {FEWEST}")
    growth = (highest / lowest) ** (1 / (iterations - 1))
    return p.model_copy(
        update={
            "base_lr": lowest, "lr_policy": "exp", "gamma": growth, "rampup_interval": 0, "max_iter": iterations,
            "test_interval": 0, "test_initialization": False, "display": 0, "debug_info": False, "snapshot": 0,
            "snapshot_after_train": False, "snapshot_prefix": "", "minidnn": p.minidnn.model_copy(update=QUIET),
        }
    )  # fmt: skip


def steps(solver: Solver) -> Iterator[tuple[float, float]]:
    """(rate, loss) of each step of a solver of `ranging`, until its end, or until training diverges: the loss is no
    longer finite, or as far above the first one as that is above 0.

    Raises Diverged if the first loss is not finite: no update has been made yet, so the rate is not the reason."""
    iterations = solver.parameters.max_iter
    few = max(2, iterations // NEIGHBOURS)
    losses: list[float] = []
    for _ in range(iterations):
        try:
            step = solver.step()
        except Diverged:
            if not losses:
                raise
            return
        losses.append(step.loss)
        yield step.rate, step.loss
        if float(np.mean(losses[-few:])) > losses[0] + abs(losses[0]):
            return


def found(losses: Sequence[float], iterations: int) -> Found:
    """What the losses of a range test say. iterations: those that it would have had without an end before its time."""
    half = max(2, iterations // NEIGHBOURS)
    values = np.array(losses)
    smoothed = _near(np.mean, _near(np.median, values, half), half)
    least, told = int(np.argmin(smoothed)), tuple(map(float, smoothed))
    fall = smoothed[0] - smoothed[least]
    if fall <= NOISE * float(np.median(np.abs(values - smoothed))):
        return Found(told)
    return Found(told, least, int(np.argmax(smoothed <= smoothed[0] - SHARE * fall)))


def _near(of: Callable[[np.ndarray], Any], values: np.ndarray, half: int) -> np.ndarray:
    """`of` each value and up to `half` ones on each side of it. A median first, and then a mean, keeps the place where
    a loss that fell begins to leap."""
    return np.array([of(values[max(0, i - half) : i + half + 1]) for i in range(len(values))])
