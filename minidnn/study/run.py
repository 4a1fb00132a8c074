"""A comparison of policies that are run, from the same start and on the same data: their times, and whether they end
with the same bytes.

Steps are interleaved (one of each policy, then again), so that a busy machine slows all policies alike. A result holds
the median of its steps, a confidence interval, and the trace of a median step. `identical` compares with baseline
without a budget, which is made to use the same algorithm for every op. So a policy can be compared although baseline
was refused, and a different choice of algorithms is not taken for an error.

A refused policy is run too, under the smallest budget that it can keep. If this machine has too little memory for that,
its times are simulated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from math import ceil
from time import perf_counter
from typing import Protocol

import numpy as np

from minidnn.costs import Choice, Costs
from minidnn.memory.execution.host import free_memory
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import Trace
from minidnn.memory.schedule import Arrangement
from minidnn.program import Algorithm, Op, Program
from minidnn.study.compare import Bounds, Result, against_baseline, planned


class Runner(Protocol):
    """A net loaded under one policy, with its data. `step` runs one iteration; `values` are the arrays to compare."""

    arrangement: Arrangement

    def step(self, trace: bool = False) -> Trace | None: ...

    def values(self) -> Mapping[str, np.ndarray]: ...

    def stored(self) -> int:
        """Bytes of ordinary host memory that stashed tensors took in the last step, packed or not."""
        ...

    def close(self) -> None: ...


Open = Callable[[str, Costs, "int | None"], Runner]  # (policy, costs, device budget)
Digest = dict[str, bytes]
Taken = tuple[tuple[str, str, str], ...]  # (program, op, algorithm), sorted
Tell = Callable[[str], object]

# A comparison that is given no number of steps runs as many rounds as fit into SECONDS, but at least STEPS[0] and at
# most STEPS[1]. A round is one step of every policy.
SECONDS, STEPS = 5.0, (8, 60)


def ran(
    open_runner: Open,
    programs: Sequence[Program],
    policies: Sequence[str],
    costs: Costs,
    budget: int | None = None,
    host_budget: int | None = None,
    steps: int | None = None,
    name: str = "TRAIN",
    tell: Tell = lambda text: None,
) -> list[Result]:
    """A Result per policy, each run for `steps` steps; None: the shorter the steps, the more are run.

    The first step is not timed. The last three (of fewer than eight steps, the last) are traced and not timed."""
    results: dict[str, Result] = {}
    bounds = Bounds(costs, budget)
    for policy in policies:
        tell(f"planning {policy}")
        arrangement, refused = planned(programs, policy, costs, budget, host_budget)
        trace = simulate(arrangement.schedules[name], costs)
        results[policy] = bounds.told(Result(policy, arrangement, trace, name, refused))
    free = free_memory()
    needs = {policy: _of_host(r.arrangement, costs) for policy, r in results.items()}
    able = [policy for policy in policies if needs[policy] < 0.8 * free]
    together = sum(needs[policy] for policy in able) < 0.6 * free
    ends: dict[str, Digest] = {}
    if together:
        # Whether a device's own memory holds all policies at once is known only after an attempt to load them.
        with contextlib.suppress(MemoryError):
            ends, steps = _train(open_runner, able, results, costs, steps, tell)
    interleaved = bool(ends)
    for policy in able if not ends else ():
        end, steps = _train(open_runner, [policy], results, costs, steps, tell)
        ends.update(end)
    references: dict[Taken, Digest] = {}
    for policy, reached in ends.items():
        if policy.split(":")[0] == "baseline":
            references[_algorithms(results[policy].arrangement)] = reached
    for policy, reached in ends.items():
        result = results[policy]
        same = _algorithms(result.arrangement)
        if same not in references:
            assert steps is not None
            reference = _reference(open_runner, result, costs, steps, free, tell)
            if reference is None:
                continue
            references[same] = reference
        result.identical = references[same] == reached
    against_baseline(list(results.values()), interleaved)
    return list(results.values())


def _train(
    open_runner: Open,
    policies: Sequence[str],
    results: Mapping[str, Result],
    costs: Costs,
    steps: int | None,
    tell: Tell,
) -> tuple[dict[str, Digest], int]:
    """Run these policies in turn, and write their times and traces into `results`.

    Returns the digest of each policy's values at the end, and how many steps each ran."""
    runners: dict[str, Runner] = {}
    timed: dict[str, list[float]] = {policy: [] for policy in policies}
    traces: dict[str, list[Trace]] = {policy: [] for policy in policies}
    try:
        for policy in policies:
            tell(f"loading {policy}")
            planned_with = replace(costs, staging=results[policy].schedule.staging)  # a refused policy's ring differs
            runners[policy] = open_runner(policy, planned_with, results[policy].arrangement.budget)
            results[policy].arrangement = runners[policy].arrangement  # the device may have refused an algorithm
        done = 0
        while steps is None or done < steps:
            tell(f"step {done + 1} of {steps or '?'}: {', '.join(policies)}")
            for policy, runner in runners.items():
                began = perf_counter()
                trace = runner.step(trace=steps is not None and done >= steps - _traced(steps))
                seconds = perf_counter() - began
                if trace is not None:
                    traces[policy].append(trace)
                if trace is None or steps == 1:
                    timed[policy].append(seconds)
            done += 1
            if steps is None and done == 2:
                steps = _enough(sum(seconds[-1] for seconds in timed.values()))
        assert steps is not None
        for policy in policies:
            results[policy].steps = timed[policy][1:] or timed[policy]  # the first warms up
            results[policy].trace = sorted(traces[policy], key=lambda trace: trace.seconds)[len(traces[policy]) // 2]
            if results[policy].arrangement.store:
                results[policy].more["stored_bytes"] = runners[policy].stored()
        return {policy: digest(runner.values()) for policy, runner in runners.items()}, steps
    finally:
        for runner in runners.values():
            runner.close()


def _traced(steps: int) -> int:
    """How many of `steps` steps are traced."""
    return 3 if steps >= STEPS[0] else 1


def _enough(seconds: float) -> int:
    """How many steps of each policy to run if a round takes `seconds`."""
    return min(max(ceil(SECONDS / max(seconds, 1e-9)), STEPS[0]), STEPS[1])


def _reference(open_runner: Open, result: Result, costs: Costs, steps: int, free: int, tell: Tell) -> Digest | None:
    """The digest that baseline without a budget ends with, made to use the algorithms of `result`.

    None if the memory does not suffice, or if two programs use different algorithms for the same op, since Costs cannot
    express that."""
    tell(f"baseline with the algorithms of {result.policy}")
    forced = _forced(costs, result.arrangement)
    if forced is None:
        return None
    try:
        runner = open_runner("baseline:p", forced, None)
    except MemoryError:  # the device's own memory does not suffice
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
    """Bytes of this machine's memory that running the arrangement takes."""
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
    """Costs that offer only the algorithms that `arrangement` uses, so that any policy uses them, and unlimited memory.

    None if two ops that Costs cannot tell apart use different algorithms."""

    def key(op: Op) -> tuple[object, ...]:
        """Identifies an op: TRAIN and TEST have ops of the same name that differ in kind (dropout) or in batch."""
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
    """{name: SHA-256 of the array's dtype, shape and bytes}"""
    return {
        name: sha256(f"{a.dtype} {a.shape} ".encode() + np.ascontiguousarray(a).tobytes()).digest()
        for name, a in values.items()
    }
