"""Tiers: which stashed tensors lie in the host's ordinary memory, and which on the disk behind it.

Without a disk all lie in memory. With one, memory is filled first, as far as the host budget goes, and the others go to
the disk. Without a host budget all go there. Every place in memory holds one tensor a step, so each byte of
it spares the disk the same traffic, unless a tensor makes several offload intervals. Hence the rule: first the tensors
that move most bytes for each byte that they take, and among equals those that are away for the shortest time. A disk
has the least time to write and to read these, at the turn from forward to backward.

Tiers are decided last, for all programs of a net together, and change no instruction. Until then each stashed tensor
may go to the disk, so policies see copies that are no faster than that (Costs.sustained). The bound of joint planning
counts the link alone, since a tensor that stays in the ring or in memory spares the disk.

A disk may fail in the middle of a step, which has changed some weights by then. So what a step changes is kept on the
disk as it was before (Arrangement.undo, memory/execution/undo.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from minidnn.memory.schedule import BLOCK, Arrangement, Fetch, Listing, Schedule, Stash, aligned, stored_bound
from minidnn.program import Tensor


@dataclass(frozen=True)
class Places:
    """Offsets of stashed tensors in memory and on the disk, and the bytes of both."""

    store: dict[Tensor, int]
    store_bytes: int
    disk: dict[Tensor, int]
    disk_bytes: int


def places(listing: Listing, memory: int) -> Places:
    """A place for each stashed tensor. With a disk at most `memory` bytes of them lie in memory."""
    where, on_disk = Places({}, 0, {}, 0), listing.staging is not None and listing.staging.disk is not None
    store, disk, top, end = where.store, where.disk, 0, 0
    for t in _by_gain(listing) if on_disk else _stashed(listing):
        assert listing.staging is not None
        size = aligned(stored_bound(t, listing.staging.compress))
        if not on_disk or top + size <= memory:
            store[t], top = top, top + size
        else:
            disk[t], end = end, end + aligned(t.nbytes, BLOCK)
    return Places(store, top, disk, end)


def tiered(schedules: Mapping[str, Schedule], host_budget: int | None) -> dict[str, Schedule]:
    """The schedules of one net's programs, with as much in memory as the host budget has room for."""
    result = dict(schedules)
    if host_budget is None or not any(s.disk_bytes for s in result.values()):
        return result
    without = {name: _with_places(s, host_budget) for name, s in result.items()}
    if Arrangement.of("", without, None).off_device <= host_budget:  # perhaps nothing is left for the disk
        return without
    taken = Arrangement.of("", result, None)
    return {name: _with_places(s, max(0, host_budget - taken.off_device)) for name, s in result.items()}


def _with_places(schedule: Schedule, memory: int) -> Schedule:
    where = places(schedule, memory)
    return replace(
        schedule, store_offset=where.store, store_bytes=where.store_bytes, disk_offset=where.disk,
        disk_bytes=where.disk_bytes,
    )  # fmt: skip


def _stashed(listing: Listing) -> dict[Tensor, None]:
    """The stashed tensors, in order of their first Stash."""
    return dict.fromkeys(x.staging_slot.tensor for x in listing.instructions if isinstance(x, Stash))


def _by_gain(listing: Listing) -> list[Tensor]:
    """The stashed tensors, those first that gain most by lying in memory."""
    moves: dict[Tensor, int] = dict.fromkeys(_stashed(listing), 0)
    out: dict[Tensor, int] = {}
    absence: dict[Tensor, int] = {}  # in instructions, the shortest
    for i, x in enumerate(listing.instructions):
        if isinstance(x, (Stash, Fetch)):
            t = x.staging_slot.tensor
            moves[t] += 1
            if isinstance(x, Stash):
                out[t] = i
            else:
                absence[t] = min(i - out[t], absence.get(t, i))
    return sorted(moves, key=lambda t: (-moves[t], absence.get(t, len(listing.instructions))))
