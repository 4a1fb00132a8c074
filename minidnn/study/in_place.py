"""Seconds of ops as they take them within whole steps. Where the host's memory is the device's, what an op costs
depends on what its neighbours leave in the caches; alone, in warm memory, it says little.

A net is trained for a few steps under liveness, once for each rank of algorithm: with every op's first, then with the
second of those that have one, and so on. Values are such that nothing overflows and no weight changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from statistics import median

import numpy as np

from minidnn.costs import Choice, Costs, key
from minidnn.memory.arrange import arrange
from minidnn.memory.machine import Device, Machine
from minidnn.memory.schedule import Compute
from minidnn.program import Op, Program, Role, Tensor

STEPS = 4  # that are counted, for each rank; one before warms
ENOUGH = 4.0  # seconds: steps of a rank that took this long in all are not repeated further
SLOW = 3.0  # times the best of its op: an algorithm that is this slow alone is not tried
POLICY = "liveness:p"


def in_place(
    device: Device,
    program: Program,
    costs: Costs,
    room: int,
    tell: Callable[[int, int], object] = lambda done, of: None,
) -> dict[str, float]:
    """`costs.key` -> median seconds, of what was run; empty where the step needs more than `room` bytes.

    `costs` say what each op takes alone. `tell(done, of)` is called before each rank.
    """
    offered = {op: _worthwhile(costs.choices(op)) for op in program.ops}
    found: dict[str, list[float]] = {}
    ranks = max(map(len, offered.values()))
    for rank in range(ranks):
        tell(rank, ranks)
        chosen = {op: choices[min(rank, len(choices) - 1)] for op, choices in offered.items()}
        arrangement = arrange([program], POLICY, replace(costs, choices=_only(chosen)), proof=False)
        if arrangement.arena + arrangement.host > room:
            return {}
        taken: dict[int, list[float]] = {}
        with closing(Machine(device, arrangement)) as machine:
            _fill(machine, program)
            spent, steps = 0.0, 0
            while steps <= STEPS and spent < ENOUGH:
                trace = machine.step(trace=True, again=steps > 0)
                assert trace is not None
                for span in trace.spans if steps else ():
                    taken.setdefault(span.index, []).append(span.end - span.start)
                spent, steps = spent + trace.seconds, steps + 1
        for i, x in enumerate(arrangement.schedules[program.name].instructions):
            if isinstance(x, Compute) and (rank == 0 or len(offered[x.op]) > rank) and i in taken:
                found.setdefault(key(x.op, x.algorithm), []).append(median(taken[i]))
    return {name: max(median(seconds), 1e-9) for name, seconds in found.items()}


def _worthwhile(choices: Sequence[Choice]) -> list[Choice]:
    best = min(c.seconds for c in choices)
    return [c for c in choices if c.seconds <= SLOW * best]


def _only(chosen: Mapping[Op, Choice]) -> Callable[[Op], tuple[Choice, ...]]:
    return lambda op: (chosen[op],)


def _fill(machine: Machine, program: Program) -> None:
    """Inputs of noise and labels of class 0; weights as He and others draw them, so that what they make stays about as
    large; statistics and momenta of 0, and a learning rate of 0 keeps them all."""
    random = np.random.default_rng(0)
    for t in program.inputs:
        value = random.standard_normal(t.shape, np.float32) if t.role is Role.INPUT else np.zeros(t.shape)
        machine.write(t, value.astype(t.dtype))
    for t in program.carried:
        machine.set(t, _first(t, random))


def _first(t: Tensor, random: np.random.Generator) -> np.ndarray:
    if t.role is not Role.PARAM:
        return np.zeros(t.shape, t.dtype)
    if len(t.shape) < 2:
        return np.full(t.shape, 0.5, t.dtype)
    scale = math.sqrt(2 / (t.size // t.shape[0]))
    return (random.standard_normal(t.shape, np.float32) * np.float32(scale)).astype(t.dtype)
