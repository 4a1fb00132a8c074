"""The efficiency-optimal minibatch under a budget: tuning in the manner of AccUDNN (a reconstruction).

AccUDNN's hyperparameter tuner (Guo et al., ICCD 2019) is known only in outline. With swapping applied, it looks for the
minibatch of the highest throughput and matches the learning rate to it. Here throughput is that of planned schedules on
the simulator, or of steps that were run. `study/scaling.py` has the learning rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from time import perf_counter

from minidnn.costs import Costs
from minidnn.costs.net import unhindered
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import copied
from minidnn.memory.planning import arrange
from minidnn.memory.policies import parts
from minidnn.program import Program
from minidnn.results.budgets import TuneRow
from minidnn.schema.message import LARGEST
from minidnn.study.run import Open

CLOSE = 0.95  # a batch is well behind the best if its throughput is below this part of the best one's
NEAR = 0.01  # a part of the best throughput that nobody minds
Make = Callable[[int], Sequence[Program]]  # the programs at a batch size


@dataclass(frozen=True)
class Point:
    """The result of one batch size. If it is refused, `why` says why, and its numbers are 0."""

    batch: int
    seconds: float = 0.0  # of one step
    stall: float = 0.0  # of these seconds, those in which compute waits for copies or communications
    moved: int = 0  # bytes that swapping copies in a step, both ways: without the batch and the loss
    arena: int = 0  # bytes on the device
    pinned: int = 0  # bytes of pinned memory on the host
    host: int = 0  # all bytes on the host
    why: str = ""
    measured: float | None = None  # seconds of a step that was run
    ranks: int = 1  # each takes such a batch
    exposed: float = 0.0  # seconds that are due to communication
    alone: float | None = None  # seconds of one rank's step; None: not planned

    @property
    def fits(self) -> bool:
        return not self.why

    @property
    def unmoved(self) -> bool:
        """Whether the batch fits without swapping."""
        return self.fits and not self.moved

    @property
    def rate(self) -> float:
        """Samples per second, of all ranks."""
        return self.ranks * self.batch / self.seconds if self.seconds else 0.0

    @property
    def efficiency(self) -> float | None:
        """The speed of all ranks over as many times that of one."""
        return self.alone / self.seconds if self.alone is not None and self.seconds else None

    def row(self, samples: int) -> TuneRow:
        """The point as a row of `--json`. samples: those of an epoch."""
        return TuneRow(
            batch=self.batch, fits=self.fits, step_seconds=self.seconds, samples_per_second=self.rate,
            stall_seconds=self.stall, moved_bytes=self.moved, peak_bytes=self.arena, pinned_bytes=self.pinned,
            host_bytes=self.host, exposed_seconds=self.exposed,
            epoch_seconds=samples / self.rate if self.fits else None, efficiency=self.efficiency, why=self.why,
        )  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """The points that were tried, by ascending batch size."""

    points: tuple[Point, ...]
    grid: int = 1  # the best batch was found to within this many samples
    multiple: int = 1  # only multiples of this many were tried

    @property
    def best(self) -> Point | None:
        """The efficiency-optimal batch: that of the highest throughput, the smallest among equals."""
        return max((p for p in self.points if p.fits), key=lambda p: (p.rate, -p.batch), default=None)

    @property
    def enough(self) -> Point | None:
        """The smallest batch whose throughput is within NEAR of the best."""
        return next((p for p in self.points if self.best is not None and p.rate >= (1 - NEAR) * self.best.rate), None)

    @property
    def unmoved(self) -> Point | None:
        """The largest batch that fits without swapping."""
        return max((p for p in self.points if p.unmoved), key=lambda p: p.batch, default=None)

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
    watch: Callable[[Point], object] = lambda point: None,
) -> Curve:
    """Throughput against batch size, with the two batches of interest found to within `grid`; None: to within an
    eighth of themselves, since what `first` is says nothing of what fits.

    The batch is halved from `first` until one moves nothing and is well behind the best. It is doubled from `first`
    until one is refused, or moves tensors and is no quicker than its half. Then bisection finds the largest batch that
    fits without swapping, and the one of the highest throughput. Every schedule is proved. Under NAME@N only multiples
    of N are tried, since bytes do not grow with the batch otherwise (study/search.py). watch: called with each new
    Point."""
    count = parts(policy) or 1
    seen: dict[int, Point] = {}

    def at(batch: int) -> Point:
        if batch not in seen:
            seen[batch] = planned(make(batch), batch, policy, costs, budget, host_budget, name)
            watch(seen[batch])
        return seen[batch]

    def behind(point: Point) -> bool:
        return point.rate < CLOSE * max(p.rate for p in seen.values())

    def step_at(low: int) -> int:
        return -(-(grid or _fine(low)) // count) * count

    def middle(low: int, high: int) -> int | None:
        step = step_at(low)
        between = (low + high) // 2 // step * step
        return between if low < between < high else None

    def half(batch: int) -> int:
        return max(count, batch // 2 // count * count)

    batch = first = max(count, first // count * count)
    while batch > count and not (at(batch).unmoved and behind(at(batch))):
        batch = half(batch)
        at(batch)
    batch = first
    while at(batch).unmoved or (at(batch).fits and at(batch).rate > at(half(batch)).rate):
        if batch > LARGEST // 2:
            break
        batch *= 2
    low = max((b for b, p in seen.items() if p.unmoved), default=0)
    high = min((b for b in seen if b > low), default=low)
    while (between := middle(low, high)) is not None:
        low, high = (between, high) if at(between).unmoved else (low, between)
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


def planned(
    programs: Sequence[Program],
    batch: int,
    policy: str,
    costs: Costs,
    budget: int | None,
    host_budget: int | None = None,
    name: str = "TRAIN",
) -> Point:
    """The Point of one batch: planned, proved and simulated."""
    try:
        found = arrange(programs, policy, costs, budget, host_budget)
    except BudgetError as error:
        return Point(batch, why=str(error))
    schedule = found.schedules[name]
    trace, moved = simulate(schedule, costs), copied(schedule.instructions, schedule)
    ranks = max((op.attrs.ranks for op in schedule.plan.order if op.on_net), default=1)
    exposed = trace.seconds - simulate(schedule, unhindered(costs)).seconds if ranks > 1 else 0.0
    return Point(
        batch, trace.seconds, trace.stall_seconds, moved["offload_bytes"] + moved["prefetch_bytes"],
        found.arena, found.host, found.off_device, ranks=ranks, exposed=max(0.0, exposed),
        alone=trace.seconds if ranks == 1 else None,
    )  # fmt: skip


def ran(open_runner: Open, point: Point, policy: str, costs: Costs, budget: int | None, steps: int = 4) -> Point:
    """`point` with measured seconds: the median of `steps` iterations that are run after a first one."""
    runner = open_runner(policy, costs, budget)
    try:
        runner.step()
        taken = []
        for _ in range(steps):
            began = perf_counter()
            runner.step()
            taken.append(perf_counter() - began)
    finally:
        runner.close()
    return replace(point, measured=median(taken))
