"""Measures ops within whole steps. On a device in the host's memory the seconds of an op depend on the data that its
neighbours leave in the caches. A measurement of the op alone, in warm memory, says little there.

A net is trained for a few steps under liveness, once for each rank of algorithm. At the first rank each op uses its
first algorithm, at the second rank its second one if it has one, and so on. The values are chosen so that nothing
overflows and no weight changes. Another process that takes the processor for a moment makes a rank look slow, and only
slow. So all ranks are visited a second time, and the quieter visit counts.

Then it is trained with many copies beside these ops, and without. That shows how long copies take there, and how far
off that may be (Costs.doubt).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from statistics import median

import numpy as np

from minidnn.costs import Choice, Costs, key
from minidnn.costs.estimates import DOUBT
from minidnn.measuring.spread import Spread
from minidnn.memory.execution.device import Device
from minidnn.memory.execution.machine import Machine
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import Trace
from minidnn.memory.planning import arrange
from minidnn.memory.schedule import Arrangement, Compute
from minidnn.program import Op, Program, Role, Tensor
from minidnn.programs.scalars import SCALE

VISITS = 2
STEPS, MANY = 4, 12  # steps that are counted, for each rank; one more before them warms the caches
BRIEF, OPENINGS = 0.1, 3  # seconds: a rank whose steps take less together gets MANY, in so many places
ENOUGH = 4.0  # seconds: a rank whose steps took this long together gets no more steps
SLOW = 3.0  # an algorithm that takes so many times as long as its op's best, alone, is not tried
POLICY, COPYING = "liveness:p", ("vdnn_all:p", "layrub:p")  # without copies, and with many
PAIRS = 30  # steps without copies, and with
LEAST, MOST = 0.25, 4.0  # of what is predicted: copies that seem to take less or more are measured wrongly


class Steps:
    """Runs steps of a schedule and collects the seconds of each instruction."""

    def __init__(self, device: Device, arrangement: Arrangement) -> None:
        self.machine = Machine(device, arrangement)
        (self.schedule,) = self.machine.arrangement.schedules.values()
        self.taken: dict[int, list[float]] = {}  # seconds of each step, by instruction
        _fill(self.machine, self.schedule.program)
        self._step()  # not counted: it warms the caches

    def _step(self, again: bool = False) -> Trace:
        trace = self.machine.step(self.schedule.program.name, trace=True, again=again)
        assert trace is not None
        return trace

    def step(self) -> float:
        """Run one more step; return the seconds of the whole step."""
        trace = self._step(again=True)
        for span in trace.spans:
            self.taken.setdefault(span.index, []).append(span.end - span.start)
        return trace.seconds

    def seconds(
        self, ops: Container[Op], typical: Callable[[Sequence[float]], float] = median
    ) -> dict[str, list[float]]:
        """Seconds of the wanted ops, by their key (costs/cache.py): a list with one number per op that has this key.

        typical: makes the number from an op's seconds in all steps"""
        result: dict[str, list[float]] = {}
        for i, x in enumerate(self.schedule.instructions):
            if isinstance(x, Compute) and x.op in ops:
                result.setdefault(key(x.op, x.algorithm), []).append(max(typical(self.taken[i]), 1e-9))
        return result

    def close(self) -> None:
        self.machine.close()
        self.machine.persistent.clear()  # these are views, which would keep the arena alive


def with_algorithms(program: Program, costs: Costs, choices: Mapping[Op, Choice]) -> Arrangement:
    """The program's plan under liveness, with the chosen algorithm for each op. It is placed but not proved."""
    return arrange([program], POLICY, replace(costs, choices=lambda op: (choices[op],)), proof=False)


def within_steps(
    device: Device,
    program: Program,
    costs: Costs,
    room: int,
    tell: Callable[[int, int], object] = lambda done, of: None,
) -> dict[str, float]:
    """Median seconds of ops within steps, by their key (costs/cache.py); empty if a step needs more than `room` bytes.

    costs: the seconds of each op alone; an algorithm that is slow by these is not tried
    tell:  called as tell(done, of) before each visit to a rank
    """
    offered = {op: _worthwhile(costs.choices(op)) for op in program.ops}
    ranks = range(max(map(len, offered.values())))
    plans = [
        with_algorithms(program, costs, {op: c[min(rank, len(c) - 1)] for op, c in offered.items()}) for rank in ranks
    ]
    if any(plan.arena + plan.host > room for plan in plans):
        return {}
    result: dict[str, float] = {}
    for visit in range(VISITS):
        found: dict[str, list[float]] = {}
        for rank, plan in zip(ranks, plans, strict=True):
            tell(visit * len(ranks) + rank, VISITS * len(ranks))
            for name, seconds in _some(device, plan, {op for op, c in offered.items() if len(c) > rank}).items():
                found.setdefault(name, []).extend(seconds)
        result |= {name: min(median(seconds), result.get(name, math.inf)) for name, seconds in found.items()}
    return result


def copies(device: Device, program: Program, costs: Costs, room: int) -> tuple[float, float] | None:
    """(how many times as long as predicted the copies of a step take, the doubt in that as Costs.doubt). None if the
    steps need more than `room` bytes, or copy no more than inputs and outputs.

    Steps of the same algorithms with copies and without take turns, so that only what copies add is compared. Where
    that is less than the noise, copies take as long as predicted. Noise forbids no copies: the doubt is at most what is
    assumed where nothing was measured."""
    plans = [arrange([program], policy, costs, proof=False) for policy in (POLICY, *COPYING)]
    traces = [simulate(plan.schedules[program.name], costs) for plan in plans]
    most = max(range(len(plans)), key=lambda i: traces[i].copying)
    still, moving, predicted = plans[0], plans[most], (traces[0], traces[most])
    moved = predicted[1].copying - predicted[0].copying
    if moved <= 0 or still.arena + still.host + moving.arena + moving.host > room:
        return None
    pairs: list[tuple[float, float]] = []
    with closing(Steps(device, still)) as alone, closing(Steps(device, moving)) as beside:
        while len(pairs) < PAIRS and (len(pairs) < STEPS or sum(map(sum, pairs)) < ENOUGH):
            pairs.append((alone.step(), beside.step()))
    slower = Spread.of([more / less for less, more in pairs])
    low, middle, high = (
        1 + (ratio * predicted[0].seconds - predicted[1].seconds) / moved
        for ratio in (slower.low, slower.median, slower.high)
    )
    stretch = 1.0 if low <= 1 <= high else min(max(LEAST, middle), MOST)
    return stretch, min(max(0.0, high - stretch) / stretch, DOUBT)


def _some(device: Device, arrangement: Arrangement, ops: Container[Op]) -> dict[str, list[float]]:
    """Seconds of the ops, by their key. Where memory lies changes all steps by some percent, so short ones are run in
    several places."""
    found: dict[str, list[float]] = {}
    for _ in range(OPENINGS):
        with closing(Steps(device, arrangement)) as steps:
            spent, done = 0.0, 0
            while (done < STEPS and spent < ENOUGH) or (done < MANY and spent < BRIEF):
                spent, done = spent + steps.step(), done + 1
            for name, seconds in steps.seconds(ops).items():
                found.setdefault(name, []).extend(seconds)
        if spent > BRIEF:
            break
    return found


def _worthwhile(choices: Sequence[Choice]) -> list[Choice]:
    best = min(c.seconds for c in choices)
    return [c for c in choices if c.seconds <= SLOW * best]


def _fill(machine: Machine, program: Program) -> None:
    """Give inputs and persistent tensors their values: noise as samples, and class 0 as labels.

    Weights are drawn as by He and others, so that activations stay about equally large from layer to layer. Statistics
    and momenta are 0, the loss's scale is 1, and a learning rate of 0 keeps all weights."""
    random = np.random.default_rng(0)
    for t in program.inputs:
        value = random.standard_normal(t.shape, np.float32) if t.role is Role.INPUT else np.zeros(t.shape)
        machine.write(t, value.astype(t.dtype), program.name)
    for t in (*program.persistent, *program.host_resident):
        machine.set(t, _first(t, random))


def _first(t: Tensor, random: np.random.Generator) -> np.ndarray:
    if t == SCALE:
        return np.array([1, 0], t.dtype)
    if t.role is not Role.PARAM:
        return np.zeros(t.shape, t.dtype)
    if len(t.shape) < 2:
        return np.full(t.shape, 0.5, t.dtype)
    scale = math.sqrt(2 / (t.size // t.shape[0]))
    return (random.standard_normal(t.shape, np.float32) * np.float32(scale)).astype(t.dtype)
