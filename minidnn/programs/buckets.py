"""How many bytes of gradients travel together: the size whose step is the quickest, as it is predicted.

Small buckets leave early, and each costs a latency. Large ones leave late, and backward cannot hide the last one. So a
few sizes are tried: each step is lowered as it is, without absences and with the fastest algorithms, and simulated with
the costs of the network. Among sizes that are nearly as quick, the one with the fewest live bytes is taken. Nothing is
measured, so ranks with equal costs choose alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from minidnn.costs import Costs
from minidnn.costs.net import REDUCE_SCATTER
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.lowering.lower import lower
from minidnn.memory.plan import Plan, complete, in_place_sharing
from minidnn.memory.schedule import Listing, live_peak
from minidnn.program import Program
from minidnn.programs.spec import TrainSpec

LEAST, FACTOR = 256 << 10, 4  # the smallest size tried, in bytes, and between two sizes
NEAR = 1.005  # steps that are as quick


def sized(train: TrainSpec | None, make: Callable[[TrainSpec], Program], costs: Costs) -> TrainSpec | None:
    """The spec with a size of its buckets, if several ranks train and it names none.

    make: the last micro-batch's program, of a spec
    costs: with those of communications"""
    if train is None or train.ranks == 1 or train.bucket is not None:
        return train
    result = [(size, *_predicted(make(replace(train, bucket=size)), costs)) for size in _sizes(train, make)]
    quickest = min(seconds for _, seconds, _ in result)
    near = [(live, seconds, size) for size, seconds, live in result if seconds <= NEAR * quickest]
    return replace(train, bucket=min(near)[2])


def _sizes(train: TrainSpec, make: Callable[[TrainSpec], Program]) -> Iterator[int]:
    """Sizes that differ: up to one that holds all gradients."""
    first = make(replace(train, bucket=LEAST))
    every = sum(t.nbytes for op in first.ops if op.kind == REDUCE_SCATTER for t in op.reads)
    size = LEAST
    while size < every:
        yield size
        size *= FACTOR
    yield size


def _predicted(program: Program, costs: Costs) -> tuple[float, int]:
    """Seconds of a step, and its live peak in bytes."""
    algorithms = {op: min(costs.choices(op), key=lambda c: c.seconds).algorithm for op in program.ops}
    plan = complete(program, costs, Plan(algorithm=algorithms, share=in_place_sharing(program)))
    listing: Listing = lower(program, plan)
    peak, _ = live_peak(listing.buffers, len(plan.order), lambda b: b.nbytes)
    return simulate(listing, costs).seconds, peak
