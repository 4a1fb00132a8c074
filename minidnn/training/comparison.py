"""A comparison of policies that are run, from the same start and on the same data: their times, and whether they end
with the same bytes.

Steps are interleaved (one of each policy, then again), so that a busy machine slows all policies alike. A result holds
the seconds of its steps, and the trace of the median one. A device with memory of its own replays a step as a whole,
and takes longer for a traced one. So its timed steps are not traced, and the median of some traced ones is kept.

`identical` compares with baseline without a budget, which is made to use the same algorithm for every op. So a policy
can be compared although baseline was refused, and a different choice of algorithms is not taken for an error.

A refused policy is run too, under the smallest budget that it can keep. If this machine has too little memory for that,
its times are simulated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from math import ceil
from statistics import median
from time import perf_counter
from typing import Protocol

import numpy as np

from minidnn.costs import Choice, Costs
from minidnn.jobs.compare import Result, against_baseline
from minidnn.jobs.outcome import add_bound, nearest
from minidnn.measuring.load import Load
from minidnn.measuring.spread import FEWEST
from minidnn.memory.execution.host import free_memory
from minidnn.memory.execution.trace import Trace
from minidnn.memory.parts.whole import as_whole, rows_of_parts
from minidnn.memory.schedule import Arrangement
from minidnn.program import Algorithm, Op, Program


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
# most STEPS[1]. A round is one step of every policy. The first one warms up; the median of the next TRIED says how many
# fit, since a busy machine makes some rounds many times as long.
SECONDS, STEPS, TRIED = 5.0, (8, 300), 5

# Where a start's memory lies changes all its steps by some percent. So where loading is quick and steps are short, a
# comparison that is given no number of steps divides them among several starts. The interval of the median
# (Spread.in_turn) then is that of the starts' medians.
STARTS = FEWEST


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

    The first step is not timed. On a device with memory of its own, the last three (of fewer than eight, the last) are
    traced and not timed."""
    results: dict[str, Result] = {}
    train = next(program for program in programs if program.name == name)
    for policy in policies:
        tell(f"planning {policy}")
        results[policy] = Result.of(nearest(programs, policy, costs, budget, host_budget, name))
        add_bound(results[policy], train, budget, host_budget)
    free = free_memory()
    needs = {policy: _of_host(r.arrangement, costs) for policy, r in results.items()}
    able = [policy for policy in policies if needs[policy] < 0.8 * free]
    together = sum(needs[policy] for policy in able) < 0.6 * free
    ends: dict[str, list[Digest]] = {}
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
            references[_algorithms(results[policy].arrangement)] = reached[0]
    for policy, reached in ends.items():
        result = results[policy]
        same = _algorithms(result.arrangement)
        if same not in references:
            assert steps is not None
            reference = _reference(open_runner, result, costs, steps, free, tell)
            if reference is None:
                continue
            references[same] = reference
        result.identical = all(one == references[same] for one in reached)
    against_baseline(list(results.values()), interleaved)
    return list(results.values())


@dataclass
class _Timed:
    """The measurements of one policy's steps."""

    steps: list[float] = field(default_factory=list)  # seconds
    traces: list[Trace] = field(default_factory=list)
    ends: list[Digest] = field(default_factory=list)  # of each start


def _train(
    open_runner: Open,
    policies: Sequence[str],
    results: Mapping[str, Result],
    costs: Costs,
    steps: int | None,
    tell: Tell,
) -> tuple[dict[str, list[Digest]], int]:
    """Run these policies in turn, and write their times and traces into `results`.

    Returns the digests of each policy's values at the end of each start, and how many steps each start ran."""
    found = {policy: _Timed() for policy in policies}
    before, starts, done = Load.now(), 1, 0
    while done < starts:
        began = perf_counter()
        with contextlib.ExitStack() as stack:
            runners: dict[str, Runner] = {}
            for policy in policies:
                tell(f"loading {policy}")
                arrangement, staging = results[policy].arrangement, results[policy].schedule.staging
                planned_with = replace(costs, staging=staging)  # a refused policy's ring differs
                runners[policy] = open_runner(policy, planned_with, arrangement.budget)
                stack.callback(runners[policy].close)
                results[policy].plan = runners[policy].arrangement  # the device may have refused an algorithm
            share = partial(_shares, perf_counter() - began)
            starts, steps = _rounds(runners, found, costs.own_memory, (starts, steps), share, tell)
            for policy, runner in runners.items():
                found[policy].ends.append(digest(runner.values()))
                if results[policy].arrangement.store:
                    results[policy].more["stored_bytes"] = runner.stored()
        done += 1
    others = before.others_until(Load.now())
    for policy, timed in found.items():
        result = results[policy]
        result.steps = timed.steps
        result.trace = sorted(timed.traces, key=lambda trace: trace.seconds)[(len(timed.traces) - 1) // 2]
        result.more |= {"starts": starts, "other_processors": others}
    assert steps is not None
    return {policy: timed.ends for policy, timed in found.items()}, steps


def _rounds(
    runners: Mapping[str, Runner],
    found: Mapping[str, _Timed],
    own_memory: bool,
    planned: tuple[int, int | None],
    share: Callable[[float], tuple[int, int]],
    tell: Tell,
) -> tuple[int, int]:
    """Run the steps of one start, one of each policy in turn. Returns how many starts there are, and steps of each.

    planned: these two numbers; the second one is None at a first start that has to choose them
    share:   chooses them by the seconds of a round"""
    starts, steps = planned
    rounds: list[float] = []
    while steps is None or len(rounds) < steps:
        tell(f"step {len(rounds) + 1} of {steps or '?'}: {', '.join(runners)}")
        traced = not own_memory or (steps is not None and len(rounds) >= steps - _traced(steps))
        warm = steps == 1 or len(rounds) > 0  # the first step warms up
        began = perf_counter()
        for policy, runner in runners.items():
            seconds, trace = _step(runner, traced)
            if trace is not None and warm:
                found[policy].traces.append(trace)
            if warm and (trace is None or steps == 1 or not own_memory):
                found[policy].steps.append(seconds)
        rounds.append(perf_counter() - began)
        if steps is None and len(rounds) == 1 + TRIED:
            starts, steps = share(median(rounds[1:]))
    return starts, steps


def _step(runner: Runner, traced: bool) -> tuple[float, Trace | None]:
    """Run a step; its seconds, and its trace if `traced`. The seconds of a trace are without those of the feed."""
    began = perf_counter()
    trace = runner.step(trace=traced)
    return (perf_counter() - began if trace is None else trace.seconds), trace


def _traced(steps: int) -> int:
    """How many of `steps` steps are traced, on a device whose timed steps are not."""
    return 3 if steps >= STEPS[0] else 1


def _shares(opening: float, seconds: float) -> tuple[int, int]:
    """How many starts, and steps of each policy in a start; loading takes `opening` seconds, and a round `seconds`."""
    steps = min(max(ceil(SECONDS / max(seconds, 1e-9)), STEPS[0]), STEPS[1])
    starts = STARTS if opening * STARTS <= SECONDS and steps >= STARTS * (1 + TRIED) else 1
    return starts, ceil(steps / starts)


def _reference(open_runner: Open, result: Result, costs: Costs, steps: int, free: int, tell: Tell) -> Digest | None:
    """The digest that baseline without a budget ends with, made to use the algorithms of `result`.

    None if the memory does not suffice, or if two programs of training use different algorithms for the same op, since
    Costs cannot express that."""
    tell(f"baseline with the algorithms of {result.policy}")
    forced = restricted(costs, result.arrangement)
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


def restricted(costs: Costs, arrangement: Arrangement) -> Costs | None:
    """Costs that offer only the algorithms that `arrangement` uses, so that any policy uses them, and unlimited memory.

    Ops that run in parts there run as a whole, by the algorithms that give them the same bytes (memory/parts/whole.py).
    None if two ops of training that Costs cannot tell apart use different algorithms. No value depends on those of TEST
    programs."""

    def key(op: Op) -> tuple[object, ...]:
        """Identifies an op: TRAIN and TEST have ops of the same name that differ in kind (dropout) or in batch."""
        return op.name, op.kind, *(t.shape for t in op.tensors)

    taken: dict[tuple[object, ...], Algorithm] = {}
    for name, schedule in sorted(arrangement.schedules.items(), key=lambda one: one[0].startswith("TEST")):
        if schedule.program.parts and costs.own_memory:
            return None  # such a device runs no whole op part by part
        for op, algorithm in as_whole(schedule.plan.algorithm).items():
            if taken.setdefault(key(op), algorithm) != algorithm and not name.startswith("TEST"):
                return None

    def choices(op: Op) -> tuple[Choice, ...]:
        algorithm = taken[key(op)]
        return (Choice(algorithm, 0.0 if rows_of_parts(algorithm) else costs.seconds(op, algorithm)),)

    return replace(costs, choices=choices, memory=1 << 62)


def digest(values: Mapping[str, np.ndarray]) -> Digest:
    """{name: SHA-256 of the array's dtype, shape and bytes}"""
    return {
        name: sha256(f"{a.dtype} {a.shape} ".encode() + np.ascontiguousarray(a).tobytes()).digest()
        for name, a in values.items()
    }
