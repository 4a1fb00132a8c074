"""Policies run for real, side by side: the same start, the same data, and at the end the same bytes or not.

Steps are interleaved (one of each policy, then again), so that a busy machine slows all of them alike. A result holds
the median of its steps, a confidence interval, and the trace of a median step. The reference of `identical` is baseline
without a budget, made to take the same algorithm for every op: so a refused baseline still has its say, and no policy
is blamed for a choice of algorithm.

A refused policy is run too, under the smallest budget it could keep, unless this machine has not the memory; then
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

# Steps of a comparison that names no number: as many as fit in so many seconds of rounds (a round is a step of every
# policy), but not fewer than STEPS[0] and not more than STEPS[1].
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
    """Each policy for `steps` steps; None: the shorter the steps, the more of them. The first is not timed, and the
    last three (of fewer than eight: the last) are traced instead."""
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
    """Run these policies in turn and note times and traces in `results`. Returns what each policy ended with, and how
    many steps each took."""
    runners: dict[str, Runner] = {}
    timed: dict[str, list[float]] = {policy: [] for policy in policies}
    traces: dict[str, list[Trace]] = {policy: [] for policy in policies}
    try:
        for policy in policies:
            tell(f"loading {policy}")
            planned_with = replace(costs, staging=results[policy].schedule.staging)  # a refused one has another ring
            runners[policy] = open_runner(policy, planned_with, results[policy].arrangement.budget)
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
    """How many of so many steps are traced."""
    return 3 if steps >= STEPS[0] else 1


def _enough(seconds: float) -> int:
    """Steps of each policy, where a round takes `seconds`."""
    return min(max(ceil(SECONDS / max(seconds, 1e-9)), STEPS[0]), STEPS[1])


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
