"""The efficiency-optimal minibatch under a budget: tuning in the manner of AccUDNN (a reconstruction).

AccUDNN's hyperparameter tuner (Guo et al., ICCD 2019) is known only in outline. With swapping applied, it looks for the
minibatch of the highest throughput and matches the learning rate to it. Here throughput is that of planned schedules on
the simulator, or of steps that were run. `training/linear_scaling.py` has the learning rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from minidnn.costs import Costs
from minidnn.costs.net import unhindered
from minidnn.jobs.outcome import outcome
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.policies import parts
from minidnn.program import Program
from minidnn.results.budgets import TuneRow
from minidnn.schema.message import LARGEST

CLOSE = 0.95  # a batch is well behind the best if its throughput is below this part of the best one's
NEAR = 0.01  # a part of the best throughput that nobody minds
Make = Callable[[int], Sequence[Program]]  # the programs at a batch size


def unmoved(row: TuneRow) -> bool:
    """Whether the batch fits without swapping."""
    return row.fits and not row.moved_bytes


@dataclass(frozen=True)
class Curve:
    """The batches that were tried, in ascending order."""

    rows: tuple[TuneRow, ...]
    grid: int = 1  # the best batch was found to within this many samples
    multiple: int = 1  # only multiples of this many were tried

    @property
    def best(self) -> TuneRow | None:
        """The efficiency-optimal batch: that of the highest throughput, the smallest among equals."""
        return max((r for r in self.rows if r.fits), key=lambda r: (r.samples_per_second, -r.batch), default=None)

    @property
    def enough(self) -> TuneRow | None:
        """The smallest batch whose throughput is within NEAR of the best."""
        least = 0.0 if self.best is None else (1 - NEAR) * self.best.samples_per_second
        return None if self.best is None else next(r for r in self.rows if r.fits and r.samples_per_second >= least)

    @property
    def unmoved(self) -> TuneRow | None:
        """The largest batch that fits without swapping."""
        return max(filter(unmoved, self.rows), key=lambda r: r.batch, default=None)

    @property
    def ratio(self) -> float | None:
        """The best batch over the largest that fits without swapping."""
        return self.best.batch / self.unmoved.batch if self.best is not None and self.unmoved is not None else None


def sweep(
    make: Make,
    first: int,
    policy: str,
    costs: Costs,
    budget: int | None = None,
    host_budget: int | None = None,
    grid: int | None = None,
    name: str = "TRAIN",
    watch: Callable[[TuneRow], object] = lambda row: None,
) -> Curve:
    """Throughput against batch size, with the two batches of interest found to within `grid`; None: to within an
    eighth of themselves, since what `first` is says nothing of what fits.

    The batch is halved from `first` until one moves nothing and is well behind the best. It is doubled from `first`
    until one is refused, or moves tensors and is no quicker than its half. Then bisection finds the largest batch that
    fits without swapping, and the one of the highest throughput. Every schedule is proved. Under NAME@N only multiples
    of N are tried, since bytes do not grow with the batch otherwise (jobs/search.py). watch: called with each new
    row."""
    count = parts(policy) or 1
    seen: dict[int, TuneRow] = {}

    def at(batch: int) -> TuneRow:
        if batch not in seen:
            seen[batch] = of_batch(make(batch), batch, policy, costs, budget, host_budget, name)
            watch(seen[batch])
        return seen[batch]

    def behind(one: TuneRow) -> bool:
        return one.samples_per_second < CLOSE * max(r.samples_per_second for r in seen.values())

    def step_at(low: int) -> int:
        return -(-(grid or _fine(low)) // count) * count

    def middle(low: int, high: int) -> int | None:
        step = step_at(low)
        between = (low + high) // 2 // step * step
        return between if low < between < high else None

    def half(batch: int) -> int:
        return max(count, batch // 2 // count * count)

    batch = first = max(count, first // count * count)
    while batch > count and not (unmoved(at(batch)) and behind(at(batch))):
        batch = half(batch)
        at(batch)
    batch = first
    while unmoved(at(batch)) or (at(batch).fits and at(batch).samples_per_second > at(half(batch)).samples_per_second):
        if batch > LARGEST // 2:
            break
        batch *= 2
    low = max((b for b, r in seen.items() if unmoved(r)), default=0)
    high = min((b for b in seen if b > low), default=low)
    while (between := middle(low, high)) is not None:
        low, high = (between, high) if unmoved(at(between)) else (low, between)
    while True:
        order = sorted(seen)
        best = Curve(tuple(seen.values())).best
        if best is None:
            break
        i = order.index(best.batch)
        beside = [middle(a, b) for a, b in pairwise(order[max(0, i - 1) : i + 2])]
        if not any(beside):
            break
        for b in beside:
            if b is not None:
                at(b)
    return Curve(tuple(seen[b] for b in sorted(seen)), step_at(best.batch if best else 1), count)


def _fine(batch: int) -> int:
    """A power of two: an eighth of the batch, or less."""
    return 1 << max(0, (batch // 8).bit_length() - 1)


def ceiling(programs: Sequence[Program], batch: int, costs: Costs, name: str = "TRAIN") -> float:
    """Samples per second that no plan of this batch exceeds, whatever its memory: all ops once, one after another,
    each by its fastest algorithm."""
    train = next(program for program in programs if program.name == name)
    return batch / sum(costs.seconds(op, costs.fastest(op)) for op in train.ops if not op.on_net)


def of_batch(
    programs: Sequence[Program],
    batch: int,
    policy: str,
    costs: Costs,
    budget: int | None,
    host_budget: int | None = None,
    name: str = "TRAIN",
) -> TuneRow:
    """The row of one batch: planned, proved and simulated. Its epoch is not known here, and of several ranks nor is the
    efficiency. The numbers of a refused one are 0."""
    one = outcome(programs, policy, costs, budget, host_budget, name)
    if not one.fits:
        return TuneRow(
            batch=batch, fits=False, step_seconds=0.0, samples_per_second=0.0, stall_seconds=0.0, moved_bytes=0,
            peak_bytes=0, pinned_bytes=0, host_bytes=0, exposed_seconds=0.0, epoch_seconds=None, efficiency=None,
            why=str(one.refused),
        )  # fmt: skip
    plan, seconds = one.arrangement, one.seconds
    ranks = max((op.attrs.ranks for op in one.schedule.plan.order if op.on_net), default=1)
    exposed = seconds - simulate(one.schedule, unhindered(costs)).seconds if ranks > 1 else 0.0
    return TuneRow(
        batch=batch, fits=True, step_seconds=seconds, samples_per_second=ranks * batch / seconds if seconds else 0.0,
        stall_seconds=one.trace.stall_seconds, moved_bytes=one.moved, peak_bytes=plan.arena, pinned_bytes=plan.host,
        host_bytes=plan.off_device, exposed_seconds=max(0.0, exposed), epoch_seconds=None,
        efficiency=1.0 if ranks == 1 and seconds else None, why="",
    )  # fmt: skip
