"""Policies run for real, side by side: the same start, the same data, and at the end the same bytes or not.

Steps are interleaved (one of each policy, then again), so that a busy machine slows all of them alike; medians
count. The reference of `identical` is baseline without a budget, made to take the same algorithm for every op: so
a refused baseline still has its say, and no policy is blamed for a choice of algorithm.

A refused policy is run too, under the smallest budget it could keep, unless this machine has not the memory; then
its times are simulated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from statistics import median
from time import perf_counter
from typing import Protocol

import numpy as np

from minidnn.costs import Choice, Costs
from minidnn.memory.execution.host import free_memory
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import Trace
from minidnn.memory.schedule import Arrangement
from minidnn.program import Algorithm, Op, Program
from minidnn.study.compare import Result, against_baseline, planned


class Runner(Protocol):
    """A net loaded under one policy, its data at hand. `step` trains once; `values` is all that lives on."""

    arrangement: Arrangement

    def step(self, trace: bool = False) -> Trace | None: ...

    def values(self) -> Mapping[str, np.ndarray]: ...

    def stored(self) -> int:
        """Bytes that what was stashed took in ordinary memory, packed or not, in the last step."""
        ...

    def close(self) -> None: ...


Open = Callable[[str, Costs, "int | None"], Runner]  # (policy, costs, device budget)
Digest = dict[str, bytes]
Taken = tuple[tuple[str, str, str], ...]  # (program, op, algorithm), sorted
Tell = Callable[[str], object]


def ran(
    open_runner: Open,
    programs: Sequence[Program],
    policies: Sequence[str],
    costs: Costs,
    budget: int | None = None,
    host_budget: int | None = None,
    steps: int = 6,
    name: str = "TRAIN",
    tell: Tell = lambda text: None,
) -> list[Result]:
    """Each policy for `steps` steps: the first is not timed, and the last is traced instead."""
    results: dict[str, Result] = {}
    for policy in policies:
        tell(f"planning {policy}")
        arrangement, refused = planned(programs, policy, costs, budget, host_budget)
        trace = simulate(arrangement.schedules[name], costs)
        results[policy] = Result(policy, arrangement, trace, name, refused)
    free = free_memory()
    needs = {policy: _of_host(r.arrangement, costs) for policy, r in results.items()}
    able = [policy for policy in policies if needs[policy] < 0.8 * free]
    together = sum(needs[policy] for policy in able) < 0.6 * free
    ends: dict[str, Digest] = {}
    if together:
        # A device with memory of its own says only when it is asked whether it holds all of them at once.
        with contextlib.suppress(MemoryError):
            ends = _train(open_runner, able, results, costs, steps, tell)
    for policy in able if not ends else ():
        ends |= _train(open_runner, [policy], results, costs, steps, tell)
    references: dict[Taken, Digest] = {}
    for policy, end in ends.items():
        if policy.split(":")[0] == "baseline":
            references[_algorithms(results[policy].arrangement)] = end
    for policy, end in ends.items():
        result = results[policy]
        same = _algorithms(result.arrangement)
        if same not in references:
            reference = _reference(open_runner, result, costs, steps, free, tell)
            if reference is None:
                continue
            references[same] = reference
        result.identical = references[same] == end
    against_baseline(list(results.values()))
    return list(results.values())


def _train(
    open_runner: Open,
    policies: Sequence[str],
    results: Mapping[str, Result],
    costs: Costs,
    steps: int,
    tell: Tell,
) -> dict[str, Digest]:
    """Run these policies in turn, note times and traces in `results`, and return what each ended with."""
    runners: dict[str, Runner] = {}
    taken: dict[str, list[float]] = {policy: [] for policy in policies}
    try:
        for policy in policies:
            tell(f"loading {policy}")
            planned_with = replace(costs, staging=results[policy].schedule.staging)  # a refused one has another ring
            runners[policy] = open_runner(policy, planned_with, results[policy].arrangement.budget)
        for i in range(steps):
            tell(f"step {i + 1} of {steps}: {', '.join(policies)}")
            for policy, runner in runners.items():
                began = perf_counter()
                trace = runner.step(trace=i == steps - 1)
                seconds = perf_counter() - began
                if trace is not None:
                    results[policy].trace = trace
                if steps <= 2 or 0 < i < steps - 1:
                    taken[policy].append(seconds)
        for policy in policies:
            results[policy].seconds = median(taken[policy])
            if results[policy].arrangement.store:
                results[policy].more["stored_bytes"] = runners[policy].stored()
        return {policy: digest(runner.values()) for policy, runner in runners.items()}
    finally:
        for runner in runners.values():
            runner.close()


def _reference(open_runner: Open, result: Result, costs: Costs, steps: int, free: int, tell: Tell) -> Digest | None:
    """What baseline without a budget ends with, if it takes the algorithms of `result`. None: there is no memory for
    it, or two programs take other algorithms for the same op, which costs cannot say."""
    tell(f"baseline with the algorithms of {result.policy}")
    forced = _forced(costs, result.arrangement)
    if forced is None:
        return None
    try:
        runner = open_runner("baseline:p", forced, None)
    except MemoryError:  # of a device that has its own
        return None
    try:
        if _of_host(runner.arrangement, costs) > 0.8 * free:
            return None
        for _ in range(steps):
            runner.step()
        return digest(runner.values())
    finally:
        runner.close()


def _of_host(arrangement: Arrangement, costs: Costs) -> int:
    """Bytes of this machine's memory that it takes to run."""
    return arrangement.off_device + (0 if costs.own_memory else arrangement.arena)


def _algorithms(arrangement: Arrangement) -> Taken:
    return tuple(
        sorted(
            (name, op.name, algorithm.name)
            for name, schedule in arrangement.schedules.items()
            for op, algorithm in schedule.plan.algorithm.items()
        )
    )


def _forced(costs: Costs, arrangement: Arrangement) -> Costs | None:
    """Costs that know only the algorithms taken there, so that any policy takes them, and no end of memory; None where
    ops that look alike took different ones."""

    def key(op: Op) -> tuple[object, ...]:
        """TRAIN and TEST have ops of one name that differ in kind (dropout) or in batch."""
        return op.name, op.kind, *(t.shape for t in op.tensors)

    taken: dict[tuple[object, ...], Algorithm] = {}
    for schedule in arrangement.schedules.values():
        for op, algorithm in schedule.plan.algorithm.items():
            if taken.setdefault(key(op), algorithm) != algorithm:
                return None

    def choices(op: Op) -> tuple[Choice, ...]:
        algorithm = taken[key(op)]
        return (Choice(algorithm, costs.seconds(op, algorithm)),)

    return replace(costs, choices=choices, memory=1 << 62)


def digest(values: Mapping[str, np.ndarray]) -> Digest:
    """A fingerprint of every array's bytes, type and shape."""
    return {
        name: sha256(f"{a.dtype} {a.shape} ".encode() + np.ascontiguousarray(a).tobytes()).digest()
        for name, a in values.items()
    }
