"""The efficiency-optimal minibatch under a budget, and what goes with it: AccUDNN-style tuning (a reconstruction).

Of AccUDNN's hyperparameter tuner (Guo et al., ICCD 2019) it is known that, once swapping is applied, it looks for the
minibatch of the highest throughput and matches the learning rate to it. Here throughput is that of planned schedules on
the simulator, or of steps that were run; the learning rate follows the linear scaling rule with gradual warm-up of
Goyal et al. ("Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", arXiv 1706.02677, sections 2.1 and 2.2);
and N devices are a model: each takes a minibatch of its own, then they sum their gradients in a ring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from statistics import median
from time import perf_counter

from minidnn.costs import Costs
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import copied
from minidnn.memory.planning import arrange
from minidnn.program import Program, Role, nbytes
from minidnn.schema.caffe import LARGEST
from minidnn.study.run import Open

Make = Callable[[int], Sequence[Program]]  # the programs at a batch size

REFERENCE = (0.1, 256)  # Goyal et al., section 2.1: a rate of 0.1 for 256 images
WARM_EPOCHS = 5  # section 2.2
SAMPLES = 1_281_167  # ImageNet's training images


@dataclass(frozen=True)
class Point:
    """One batch size. Where it is refused, `why` says what stands in the way and its numbers are 0."""

    batch: int
    seconds: float = 0.0  # of one iteration
    stall: float = 0.0  # of them, seconds that compute waits for copies
    moved: int = 0  # bytes copied in a step, both ways, besides the batch and the loss
    arena: int = 0
    host: int = 0
    why: str = ""
    measured: float | None = None  # seconds of an iteration that was run

    @property
    def fits(self) -> bool:
        return not self.why

    @property
    def unmoved(self) -> bool:
        """Whether it fits without swapping."""
        return self.fits and not self.moved

    @property
    def rate(self) -> float:
        """Samples per second."""
        return self.batch / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Curve:
    """Throughput against batch size, ascending; sizes between two neighbours were not tried."""

    points: tuple[Point, ...]
    grid: int  # sizes are looked for to within this many samples

    @property
    def best(self) -> Point | None:
        """The efficiency-optimal batch: the highest throughput, the smaller one of equals."""
        return max((p for p in self.points if p.fits), key=lambda p: (p.rate, -p.batch), default=None)

    @property
    def unmoved(self) -> Point | None:
        """The largest batch at which nothing is swapped."""
        return max((p for p in self.points if p.unmoved), key=lambda p: p.batch, default=None)


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
    """Throughput at `first` samples, twice as many, and so on until the budget is refused or there is no larger batch.
    Then two places are looked for by halving, to within `grid` (a quarter of `first`): the largest batch at which
    nothing moves, and the one of the highest throughput. Every schedule is proved."""
    step = max(1, first // 4) if grid is None else grid
    seen: dict[int, Point] = {}

    def at(batch: int) -> Point:
        if batch not in seen:
            seen[batch] = planned(make(batch), batch, policy, costs, budget, host_budget, name)
            watch(seen[batch])
        return seen[batch]

    def middle(low: int, high: int) -> int | None:
        between = (low + high) // 2 // step * step
        return between if low < between < high else None

    batch = first
    while at(batch).fits and batch <= LARGEST // 2:
        batch *= 2
    while not any(p.fits for p in seen.values()) and batch > 1:
        batch //= 2
        at(batch)
    low = max((b for b, p in seen.items() if p.unmoved), default=0)
    high = min((b for b in seen if b > low), default=low)
    while (between := middle(low, high)) is not None:
        low, high = (between, high) if at(between).unmoved else (low, between)
    while True:
        order = sorted(seen)
        best = Curve(tuple(seen.values()), step).best
        if best is None:
            break
        i = order.index(best.batch)
        beside = [middle(a, b) for a, b in pairwise(order[max(0, i - 1) : i + 2])]
        if not any(beside):
            break
        for b in beside:
            if b is not None:
                at(b)
    return Curve(tuple(seen[b] for b in sorted(seen)), step)


def planned(
    programs: Sequence[Program],
    batch: int,
    policy: str,
    costs: Costs,
    budget: int | None,
    host_budget: int | None = None,
    name: str = "TRAIN",
) -> Point:
    """One batch planned, proved and simulated."""
    try:
        found = arrange(programs, policy, costs, budget, host_budget)
    except BudgetError as error:
        return Point(batch, why=str(error))
    schedule = found.schedules[name]
    trace, moved = simulate(schedule, costs), copied(schedule.instructions, schedule)
    return Point(
        batch, trace.seconds, trace.stall_seconds, moved["offload_bytes"] + moved["prefetch_bytes"],
        found.arena, found.host,
    )  # fmt: skip


def ran(open_runner: Open, point: Point, policy: str, costs: Costs, budget: int | None, steps: int = 4) -> Point:
    """The same batch run for real: the median seconds of `steps` iterations after a first one."""
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


# ---- the learning rate


@dataclass(frozen=True)
class Matched:
    """Solver fields that go with a minibatch. `scaled`: those that count iterations, made to mean the same epochs."""

    base_lr: float
    rampup_lr: float
    rampup_interval: int  # iterations; 0: no warm-up is needed
    scaled: dict[str, int | list[int]]

    def fields(self) -> dict[str, object]:
        warm = {"rampup_lr": self.rampup_lr, "rampup_interval": self.rampup_interval} if self.rampup_interval else {}
        return {"base_lr": self.base_lr, **warm, **self.scaled}


def matched(
    rate: float,
    reference: int,
    minibatch: int,
    samples: int = SAMPLES,
    counts: dict[str, int | list[int]] | None = None,
    epochs: int = WARM_EPOCHS,
) -> Matched:
    """The learning rate for `minibatch` samples an update, given that `rate` is right for `reference`: k times the
    minibatch takes k times the rate (Goyal et al., 2.1). Where k > 1 it begins at `rate` and rises evenly over the
    first `epochs` (2.2). `counts`: solver fields that count iterations of `reference` samples."""
    k = minibatch / reference
    warm = ceil(epochs * samples / minibatch) if k > 1 else 0
    scaled: dict[str, int | list[int]] = {}
    for name, value in (counts or {}).items():
        each = [max(1, round(v / k)) for v in (value if isinstance(value, list) else [value])]
        scaled[name] = each if isinstance(value, list) else each[0]
    return Matched(rate * k, rate, warm, scaled)


# ---- several devices, by model


@dataclass(frozen=True)
class Cluster:
    """Devices that train in step, each on minibatches of its own, with one sum of gradients after each iteration that
    overlaps with nothing: a ring all-reduce, in which each device sends and receives 2 (N - 1) / N of the bytes."""

    devices: int
    bandwidth: float  # bytes per second of each link of the ring, each way
    latency: float = 0.0  # seconds of each of the 2 (N - 1) rounds

    def sync(self, nbytes: int) -> float:
        """Seconds until every device has the sum of so many bytes."""
        rounds = 2 * (self.devices - 1)
        return rounds * (nbytes / self.devices / self.bandwidth + self.latency)

    def efficiency(self, point: Point, nbytes: int) -> float:
        """What part of an iteration is not spent on the sum: speed-up over one device, per device."""
        return point.seconds / (point.seconds + self.sync(nbytes))

    def epoch(self, point: Point, nbytes: int, samples: int = SAMPLES) -> float:
        """Seconds in which all devices together see every sample once."""
        return samples / (self.devices * point.batch) * (point.seconds + self.sync(nbytes))


def gradient_bytes(program: Program) -> int:
    """What devices have to agree on after an iteration: as many bytes as the weights have."""
    return nbytes(t for t in program.carried if t.role is Role.PARAM)
