"""A Plan: the decisions of a policy about one program, as plain facts. It has no instructions and no addresses.

Points are positions in `plan.order`: point p is "before execution p", and len(order) is the end of the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise

from minidnn.costs import Costs
from minidnn.program import Algorithm, Op, Program, Tensor

Point = int


@dataclass(frozen=True)
class Slot:
    """A buffer held for the whole step. It is as large as its largest member, and has at least `nbytes` bytes.

    Where a member leaves the slot by an offload, compute waits for the copy out as it would at a Free.
    """

    name: str
    nbytes: int = 0


@dataclass(frozen=True)
class OffloadInterval:
    """One absence of a tensor from the device; a tensor may have several, in order of `free_at`.

    offload_at:  the copy out is issued before this point and overlaps readers; None: the host's copy is valid already
    free_at:     the bytes are free from this point on, after the copy; None: the tensor is on the host when the step
                 begins
    prefetch_at: bytes are taken and the copy back is issued before this point; None: the tensor does not return
    needed_at:   compute waits here for the copy back; not after the first read, re-runs included
    into:        the slot whose bytes the copy back takes; None: bytes of its own
    on_demand:   whether the copy out begins no sooner than `offload_at`, as that of a runtime which decides there. If
                 not, it begins as soon as the tensor has its value and the copies before it are done
    """

    tensor: Tensor
    offload_at: Point | None
    free_at: Point | None
    prefetch_at: Point | None
    needed_at: Point | None
    into: Slot | None = None
    on_demand: bool = False


# {tensor: the tensor or slot whose bytes it takes}. An Op as key means its workspace; a pair means the one residency of
# the tensor that the execution at this point begins by a write.
Sharing = Tensor | Op | tuple[Tensor, Point]
Share = dict[Sharing, Tensor | Slot]


@dataclass(frozen=True, eq=False)
class Plan:
    """The decisions about one step's memory. `complete` fills in the fields that are left out.

    order:         every execution; a forward op that occurs again is a recomputation
    offloads:      absences; inputs come and outputs leave by offloads too, and host-resident tensors do both
    algorithm:     one per op, the same for all executions of the op
    share:         {a tensor, one residency of a tensor, or an op for its workspace: the tensor or slot whose bytes it
                   takes}; only for residencies begun by a write, since a copy back goes to the bytes that its offload
                   interval names (OffloadInterval.into)
    hold:          tensors whose bytes are kept for the whole step (network-wide allocation)
    host_resident: persistent tensors that live on the host instead, besides the program's own; all programs of a net
                   agree on them (memory/planning.py)
    host_ops:      ops that the host runs on its own bytes, while the device goes on. Their reads must be on the host.
                   These are inputs, host-resident tensors, results of such ops, and tensors that have left by an
                   offload
    asap:          whether a copy back begins as soon as its bytes are free (memory/lowering/asap.py). If not, it does
                   not begin before its point
    bound:         a lower bound on the step time of any plan of its program that keeps the budget and runs every op on
                   the device (memory/joint/bound.py), if the policy computes one
    program:       the program that the plan is for, if it is not the one that the policy was given, but that one with
                   ops in parts (memory/parts/); else None
    """

    order: tuple[Op, ...] = ()
    offloads: tuple[OffloadInterval, ...] = ()
    algorithm: Mapping[Op, Algorithm] = field(default_factory=dict)
    share: Mapping[Sharing, Tensor | Slot] = field(default_factory=dict)
    hold: frozenset[Tensor] = frozenset()
    host_resident: frozenset[Tensor] = frozenset()
    host_ops: frozenset[Op] = frozenset()
    asap: bool = False
    bound: float | None = None
    program: Program | None = None

    def __repr__(self) -> str:
        again = len(self.order) - len(set(self.order))
        return f"<plan of {len(set(self.order))} ops: {len(self.offloads)} offload intervals, {again} ops run again>"


# A policy: (program, costs, budget in bytes) -> Plan. Under a budget of 0 it returns its leanest plan.
Policy = Callable[[Program, Costs, int], Plan]


def complete(program: Program, costs: Costs, plan: Plan) -> Plan:
    """The plan with program order, default algorithms, and offload intervals of inputs, outputs and host-resident
    tensors where the policy left them out.

    An input arrives at its first reader; its copy is issued one execution earlier, to overlap that. An output leaves
    after its last write, and its bytes stay until the step ends. A double-buffered input makes no offload, nor does
    what the caller holds: the device has it. A host-resident tensor arrives like an input, and its new value leaves
    after its last write. If the policy has no offload of it, it is also away between uses that are more than NEAR
    executions apart (`_between`). A tensor that an op of the host reads leaves after its last write.

    Raises ValueError for an op that the host cannot run.
    """
    program = program.with_host_resident(plan.host_resident)
    order = plan.order or program.ops
    algorithm = {op: plan.algorithm.get(op) or costs.choices(op)[0].algorithm for op in dict.fromkeys(order)}
    there = program.double_buffered.union(program.held)
    offloads = [offload for offload in plan.offloads if offload.tensor not in there]
    own: dict[Tensor, list[OffloadInterval]] = defaultdict(list)
    for offload in offloads:
        own[offload.tensor].append(offload)
    for op in plan.host_ops:
        costs.host_seconds(op)
    moving = {
        *program.inputs,
        *program.host_resident,
        *program.outputs,
        *(t for op in plan.host_ops for t in op.tensors),
    }
    uses = _uses(order, moving, plan.host_ops)
    renewed: dict[Tensor, list[Point]] = defaultdict(list)  # where the host writes it
    for p, op in enumerate(order):
        for t in op.writes if op in plan.host_ops else ():
            renewed[t].append(p)
    end = len(order)
    added: list[OffloadInterval] = []
    for t in (*program.inputs, *program.host_resident):
        first = next(iter(uses.get(t, ())), None)
        here = t in program.double_buffered or any(offload.free_at is None for offload in own[t])
        if first is not None and first.reads and not here:
            added.append(OffloadInterval(t, None, None, max(0, first.at - 1), first.at))
    for t in program.host_resident:
        if t in uses:
            middle = [] if own[t] or t in plan.hold else list(_between(t, uses[t], renewed[t]))
            added += [*middle, *_write_back(t, uses[t], [*own[t], *middle], end)]
    # An order in which no op writes an output is refused by the proof.
    for t in program.outputs:
        written = [use.at for use in uses.get(t, ()) if use.writes]
        if written and not any(offload.prefetch_at is None for offload in own[t]):
            added.append(OffloadInterval(t, written[-1] + 1, end, None, None))
    fixed = {*program.fixed, *(t for op in plan.host_ops for t in op.writes)}
    for t in dict.fromkeys(t for op in order if op in plan.host_ops for t in op.reads if t not in fixed):
        written = [use.at for use in uses.get(t, ()) if use.writes]
        if written and all(offload.offload_at is None for offload in own[t]):
            out = written[-1] + 1
            added.append(OffloadInterval(t, out, min(max(out, uses[t][-1].at) + 1, end), None, None))
    return replace(plan, order=order, offloads=(*added, *offloads), algorithm=algorithm)


NEAR = 4  # executions


@dataclass(frozen=True, slots=True)
class _Use:
    """An execution that uses a tensor."""

    at: Point
    reads: bool
    writes: bool


def _uses(order: Sequence[Op], of: Set[Tensor], host_ops: Collection[Op]) -> dict[Tensor, list[_Use]]:
    """The uses of these tensors by the device: those of ops that the host runs are left out."""
    result: dict[Tensor, list[_Use]] = defaultdict(list)
    for p, op in enumerate(order):
        if op in host_ops:
            continue
        reads, writes = set(op.reads), set(op.writes)
        for t in op.tensors:
            if t in of:
                result[t].append(_Use(p, t in reads, t in writes))
    return result


def _between(t: Tensor, uses: Sequence[_Use], renewed: Sequence[Point]) -> Iterator[OffloadInterval]:
    """The offload intervals of a host-resident tensor between uses that are far apart. It leaves by a copy only if it
    has been written since the host got it, and comes back one execution before it is read.

    renewed: where the host writes it, so that its new value must come"""
    changed = False
    for one, other in pairwise(uses):
        changed |= one.writes
        new = [p for p in renewed if one.at < p < other.at]
        if (other.at - one.at > NEAR or new) and other.reads:
            free = one.at + 2 if changed else one.at + 1
            back = max(other.at - 1, *(p + 1 for p in new)) if new else other.at - 1
            yield OffloadInterval(t, one.at + 1 if changed else None, min(free, back), back, other.at)
            changed = False


def _write_back(
    t: Tensor, uses: Sequence[_Use], offloads: Sequence[OffloadInterval], end: Point
) -> Iterator[OffloadInterval]:
    """The offload interval by which a host-resident tensor's last value leaves, unless one of `offloads` does
    that. The bytes are free one execution later, or after the last reader."""
    written = [use.at for use in uses if use.writes]
    gone = any(
        offload.prefetch_at is None or (offload.offload_at is not None and written and offload.offload_at > written[-1])
        for offload in offloads
    )
    if written and not gone:
        out = written[-1] + 1
        yield OffloadInterval(t, out, min(max(out, uses[-1].at) + 1, end), None, None)


def in_place_sharing(program: Program, kinds: Callable[[Op], bool] = lambda op: True) -> Share:
    """{written tensor: the tensor whose bytes it may take}, of the ops that `kinds` accepts.

    A pair is taken if the kernel permits it, and nothing reads the overwritten tensor later in the program's own order.
    Inputs, outputs, persistent and host-resident tensors never share. A plan that repeats ops must check again; the
    proof (memory/proof/verify.py) finds every wrong pair.
    """
    last_read: dict[Tensor, int] = {}
    for p, op in enumerate(program.ops):
        for t in op.reads:
            last_read[t] = p
    fixed = program.fixed
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
    """A tensor's fate in a word, for people: "keep", "offload" or "recompute"."""
    if any(
        offload.tensor == tensor and offload.offload_at is not None and offload.prefetch_at is not None
        for offload in plan.offloads
    ):
        return "offload"
    runs = sum(tensor in op.writes for op in plan.order)
    return "recompute" if runs > sum(tensor in op.writes for op in program.ops) else "keep"
