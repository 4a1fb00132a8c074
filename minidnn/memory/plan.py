"""A Plan: what a policy decides about one program, as facts. It emits nothing and places nothing.

Points are positions in `plan.order`: point p is "before execution p"; len(order) is the end of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from minidnn.costs import Costs
from minidnn.program import Algorithm, Op, Program, Tensor

Point = int


@dataclass(frozen=True)
class Slot:
    """One buffer held for the whole step; its size is its largest member's, and at least `nbytes`.

    Where a member leaves it by a trip, compute waits for the copy out as it would at a Free.
    """

    name: str
    nbytes: int = 0


@dataclass(frozen=True)
class Trip:
    """One absence of a tensor from the device; a tensor may have several, in order of `free`.

    out:    the copy out is issued before this point, beside readers; None: the host's copy is valid already
    free:   the bytes are free from this point on, after the copy; None: the step begins with it on the host
    back:   bytes are taken and the copy back is issued before this point; None: it does not return
    arrive: compute waits here for the copy back; not after the first read, re-runs included
    into:   the slot whose bytes the copy back takes; None: bytes of its own
    """

    tensor: Tensor
    out: Point | None
    free: Point | None
    back: Point | None
    arrive: Point | None
    into: Slot | None = None


# Who takes whose bytes; an Op means its workspace.
Share = dict[Tensor | Op, Tensor | Slot]


@dataclass(frozen=True, eq=False)
class Plan:
    """What one step does with memory. Left-out fields take the defaults of `complete`.

    order:     every execution; a forward op standing again is a recomputation
    trips:     absences; inputs come and outputs leave by trips too
    algorithm: per op, never per execution: a re-run is the same kernel
    share:     this tensor (an Op means its workspace) takes those bytes; only for stays begun by a write: what a copy
               brings lies where its trip says (Trip.into)
    hold:      tensors whose bytes are kept for the whole step (network-wide allocation)
    """

    order: tuple[Op, ...] = ()
    trips: tuple[Trip, ...] = ()
    algorithm: Mapping[Op, Algorithm] = field(default_factory=dict)
    share: Mapping[Tensor | Op, Tensor | Slot] = field(default_factory=dict)
    hold: frozenset[Tensor] = frozenset()


# A policy decides: (program, costs, budget in bytes) -> Plan. Asked with a budget of 0 it gives its leanest plan.
Policy = Callable[[Program, Costs, int], Plan]


def complete(program: Program, costs: Costs, plan: Plan) -> Plan:
    """Fill in what the policy left out: program order, default algorithms, the trips of inputs and outputs.

    An input comes at its first reader (the copy is issued one execution earlier, so that it overlaps);
    an output leaves once it has its last value, and its bytes stay until the step ends.
    """
    order = plan.order or program.ops
    algorithm = {op: plan.algorithm.get(op) or costs.choices(op)[0].algorithm for op in dict.fromkeys(order)}
    comes = {trip.tensor for trip in plan.trips if trip.free is None}
    leaves = {trip.tensor for trip in plan.trips if trip.back is None}
    first_read: dict[Tensor, Point] = {}
    last_write: dict[Tensor, Point] = {}
    for p, op in enumerate(order):
        for t in op.reads:
            first_read.setdefault(t, p)
        for t in op.writes:
            last_write[t] = p
    added = [
        Trip(t, None, None, max(0, first_read[t] - 1), first_read[t])
        for t in program.inputs
        if t not in comes and t in first_read
    ]
    end = len(order)
    added += [Trip(t, last_write[t] + 1, end, None, None) for t in program.outputs if t not in leaves]
    return replace(plan, order=order, trips=(*added, *plan.trips), algorithm=algorithm)


def in_place_sharing(program: Program, kinds: Callable[[Op], bool] = lambda op: True) -> Share:
    """Which written tensors may take the bytes of one they replace: {write: read}.

    A pair is taken where the kernel permits it and nobody reads the overwritten tensor later in the
    program's own order (a plan that repeats ops must check again; `verify` proves it either way).
    """
    last_read: dict[Tensor, int] = {}
    for p, op in enumerate(program.ops):
        for t in op.reads:
            last_read[t] = p
    fixed = {*program.inputs, *program.carried, *program.outputs}
    share: Share = {}
    for p, op in enumerate(program.ops):
        if not kinds(op):
            continue
        taken: set[Tensor] = set()
        for read, write in op.inplace:
            free = last_read[read] == p and read not in fixed and write not in fixed
            if free and write not in share and read not in taken and write.nbytes <= read.nbytes:
                share[write] = read
                taken.add(read)
    return share


def fate(plan: Plan, program: Program, tensor: Tensor) -> str:
    """What becomes of a tensor, in a word for people: keep, offload or recompute."""
    if any(trip.tensor == tensor and trip.out is not None and trip.back is not None for trip in plan.trips):
        return "offload"
    runs = sum(tensor in op.writes for op in plan.order)
    return "recompute" if runs > sum(tensor in op.writes for op in program.ops) else "keep"
