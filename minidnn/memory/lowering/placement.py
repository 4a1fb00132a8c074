"""Placement gives each buffer a fixed offset in one arena. Buffers that live at the same time must not overlap.

The arena's height is at least the live peak, the largest sum of bytes alive at once. Buffers that live for the whole
step overlap all others in time, so they are stacked at the bottom, which costs nothing. The rest is a packing problem
(memory/packing/), which knows neither tensors nor plans.

Tensors that live from step to step have one place in all programs of a net. On the host these lie first, once for all
programs; behind them each program has places of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from minidnn.costs import Heuristic
from minidnn.memory.lowering.tiers import places
from minidnn.memory.packing import Problem, pack
from minidnn.memory.packing.pool import pooled
from minidnn.memory.plan import Plan
from minidnn.memory.schedule import (
    ALIGNMENT,
    Buffer,
    Listing,
    Offload,
    Prefetch,
    Schedule,
    aligned,
    live_peak,
    room,
)
from minidnn.program import Pass, Program, Tensor


def problem(buffers: Sequence[Buffer]) -> Problem:
    """The packing of these buffers, with aligned sizes."""
    rows = np.array([(b.lo, b.hi, aligned(b.nbytes)) for b in buffers], np.int64).reshape(-1, 3)
    return Problem(*rows.T)


@dataclass(frozen=True)
class PersistentLayout:
    """Where the tensors lie that live across steps: the same in all programs of a net.

    device: offsets in the arena, of persistent tensors; nbytes: their total
    host:   offsets in the host's part, of host-resident tensors; host_bytes: their total
    """

    device: Mapping[Tensor, int]
    nbytes: int
    host: Mapping[Tensor, int]
    host_bytes: int


def persistent_layout(*programs: Program) -> PersistentLayout:
    """The persistent layout that the programs share."""
    persistent = {t: room(program, t) for program in programs for t in program.persistent}
    host_resident = {t: t.nbytes for program in programs for t in program.host_resident}
    return PersistentLayout(*_stacked(persistent), *_stacked(host_resident))


def _stacked(sizes: Mapping[Tensor, int]) -> tuple[dict[Tensor, int], int]:
    """Offsets of bytes that lie one behind the other, and where they end."""
    where: dict[Tensor, int] = {}
    top = 0
    for t, size in sizes.items():
        where[t] = top
        top += aligned(size)
    return where, top


def lasting_maps(buffers: Sequence[Buffer], plan: Plan) -> np.ndarray:
    """bool (buffers,): whether a buffer lives on the device from the forward pass into the backward pass."""
    turn = next((p for p, op in enumerate(plan.order) if op.during is Pass.BACKWARD), len(plan.order))
    return np.array([not b.persistent and b.lo < turn < b.hi for b in buffers], bool)


def place(
    listing: Listing,
    at: PersistentLayout | None = None,
    enough: int = 0,
    quick: bool = False,
    by: Heuristic | None = None,
) -> Schedule:
    """The listing as a schedule: every buffer with its offset, every travelling tensor with its place on the host.

    at:     the persistent layout that a net's programs share; None: this program's alone
    enough: bytes; an arena of this size is as good as the lowest, for callers that only check a budget
    quick:  whether a larger arena need not be the lowest (packing.pack)
    by:     how buffers get their places (Costs.placement); None: the lowest that are found
    """
    program, plan = listing.program, listing.plan
    at = at or persistent_layout(program)
    base = at.nbytes
    end = len(plan.order)
    offset: dict[Buffer, int] = {}
    rest: list[Buffer] = []
    for b in listing.buffers:
        if b.persistent:
            offset[b] = at.device[b.residencies[0].tensor]
        elif b.lo == 0 and b.hi == end:
            offset[b], base = base, base + aligned(b.nbytes)
        else:
            rest.append(b)
    arena, how = base, "stack"
    if rest:
        if by is None:
            packed = pack(problem(rest), enough - base, quick=quick)
        else:
            packed = pooled(problem(rest), by, lasting_maps(rest, plan), enough - base, ALIGNMENT)
        offset |= zip(rest, (packed.offset + base).tolist(), strict=True)
        arena, how = base + packed.height, packed.how
    peak, point = live_peak(listing.buffers, end, lambda b: b.nbytes)
    host_offset, host_bytes = _host(listing, at)
    behind = places(listing, 0)
    return Schedule(
        program, plan, listing.instructions, listing.buffers, listing.points, listing.ring, listing.staging,
        behind.disk, listing.on_peer, offset, arena, how, host_offset, host_bytes, at.host_bytes, behind.store,
        behind.store_bytes, behind.disk_bytes, peak, point,
    )  # fmt: skip


def pinned(program: Program, plan: Plan) -> int:
    """Bytes of the host that the plan pins without a ring, host-resident tensors among them."""
    return _host(Listing(program, plan, (), (), ()), persistent_layout(program))[1]


def _host(listing: Listing, at: PersistentLayout) -> tuple[dict[Tensor, int], int]:
    """Offsets on the host and their bytes: the fixed offsets of host-resident tensors, and a pinned place for each
    other travelling tensor, two for each input.

    Tensors that pass through the ring or leave for a peer get none. No place is used again within a step.
    """
    where = {t: at.host[t] for t in listing.program.host_resident}
    top = at.host_bytes
    inputs = set(listing.program.inputs)
    ringed = {
        x.residency.tensor
        for x in listing.instructions
        if isinstance(x, (Offload, Prefetch)) and x.staging_slot is not None
    }
    here = (t for op in listing.plan.order if op in listing.plan.host_ops for t in op.tensors)
    for t in dict.fromkeys((*listing.program.inputs, *(offload.tensor for offload in listing.plan.offloads), *here)):
        if t not in ringed and t not in where and t not in listing.on_peer:
            where[t] = top
            top += aligned(t.nbytes) * (2 if t in inputs else 1)
    return where, top
