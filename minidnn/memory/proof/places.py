"""The part of the proof that looks at no instruction: sizes of tensors, places on the host and in the store, and fixed
offsets.

Each function returns the first error as text, or None.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from minidnn.memory.schedule import (
    ALIGNMENT,
    BLOCK,
    Buffer,
    Fetch,
    Offload,
    Prefetch,
    Schedule,
    Stash,
    aligned,
    stored_bound,
    workspace_of,
)
from minidnn.program import Op, Program, Tensor


def wrong_size(s: Schedule) -> str | None:
    """An error if a tensor has other bytes in the schedule than in the program. (Tensors are equal by name.)"""
    known = {t: t.nbytes for op in s.program.ops for t in op.tensors}
    known |= {workspace_of(op, a): a.workspace for op, a in s.plan.algorithm.items() if a.workspace}
    for t in _all_tensors(s):
        if known.setdefault(t, t.nbytes) != t.nbytes:
            return f"{t.name} has {known[t]} bytes in the program and {t.nbytes} in the schedule"
    return None


def _all_tensors(s: Schedule) -> Iterator[Tensor]:
    """Every tensor of the program and the schedule."""
    yield from (t for op in s.program.ops for t in (*op.reads, *op.writes))
    yield from (*s.program.inputs, *s.program.persistent, *s.program.outputs)
    yield from (residency.tensor for b in s.buffers for residency in b.residencies)
    yield from (*s.host_offset, *s.store_offset, *s.disk_offset, *s.on_peer)
    for x in s.instructions:
        if isinstance(x, (Stash, Fetch)) or (isinstance(x, (Offload, Prefetch)) and x.staging_slot is not None):
            yield x.staging_slot.tensor  # type: ignore[union-attr]


def wrong_place(s: Schedule) -> str | None:
    """An error if two places overlap on the host, in the store or on the disk, or if a tensor has a place both in the
    store and on the disk.

    An input needs two places on the host, and a host-resident tensor one, among the bytes that programs share. A packed
    tensor needs room for the case that packing saves nothing.
    """
    inputs = set(s.program.inputs)
    packed = s.staging is not None and s.staging.compress
    used = {t for op in s.program.ops for t in op.tensors}
    for t in s.program.inputs:
        if t in used and t not in s.host_offset:
            return f"{t.name} comes from the host, but has no place there"
    for t in s.store_offset.keys() & s.disk_offset.keys():
        return f"{t.name} has a place in the store and one on the disk"
    return (
        _misplaced(s.host_offset, lambda t: aligned(t.nbytes) * (2 if t in inputs else 1), s.host_bytes, "on the host")
        or _misplaced(s.store_offset, lambda t: stored_bound(t, packed), s.store_bytes, "in the store")
        or _misplaced(s.disk_offset, lambda t: t.nbytes, s.disk_bytes, "on the disk", BLOCK)
        or _wrong_peer(s)
        or _astray(s)
    )


def _wrong_peer(s: Schedule) -> str | None:
    """An error if two tensors overlap on a peer, or one has a place there and one on the host."""
    for t in s.on_peer.keys() & {*s.host_offset, *s.store_offset, *s.disk_offset}:
        return f"{t.name} has a place on a peer and one on this machine"
    for peer in dict.fromkeys(place.peer for place in s.on_peer.values()):
        at = {t: place.at for t, place in s.on_peer.items() if place.peer is peer}
        if wrong := _misplaced(at, lambda t: t.nbytes, peer.nbytes, f"on {peer.title}"):
            return wrong
    return None


def _astray(s: Schedule) -> str | None:
    """An error unless host-resident tensors, and no others, lie among the bytes of the host that programs share."""
    host_resident = set(s.program.host_resident)
    if lost := next((t for t in s.program.host_resident if t not in s.host_offset), None):
        return f"{lost.name} lives on the host, but has no place there"
    for t, at in s.host_offset.items():
        if t in host_resident and at + aligned(t.nbytes) > s.host_shared:
            return f"{t.name} lives on the host, but not among the {s.host_shared} bytes that programs share there"
        if t not in host_resident and at < s.host_shared:
            return f"{t.name} lies on the host among the {s.host_shared} bytes of tensors that live there"
    return None


def _misplaced(
    where: Mapping[Tensor, int], size: Callable[[Tensor], int], most: int, what: str, to: int = ALIGNMENT
) -> str | None:
    """An error unless all places are aligned `to` so many bytes, do not overlap, and end within `most` bytes."""
    spans: list[tuple[int, int, str]] = []
    for t, at in where.items():
        if at < 0 or at % to:
            return f"{t.name} lies at {at} {what}, not at a multiple of {to}"
        insort(spans, (at, at + aligned(size(t), to), t.name))
    for (_, end, a), (start, _, b) in pairwise(spans):
        if start < end:
            return f"{a} and {b} overlap {what}"
    if spans and spans[-1][1] > most:
        return f"{spans[-1][2]} ends beyond the {most} bytes {what}"
    return None


def wrong_persistent(s: Schedule) -> str | None:
    """An error unless each persistent buffer holds one persistent tensor, no tensor has two such buffers, and
    residencies name their buffers."""
    persistent = set(s.program.persistent)
    if both := persistent.intersection(s.program.host_resident):
        return f"{min(t.name for t in both)} lives on the device and on the host"
    if left := s.plan.host_resident.difference(s.program.host_resident):
        return f"{min(t.name for t in left)} is to live on the host, but does not"
    members: set[Tensor] = set()
    for b in s.buffers:
        for residency in b.residencies:
            if residency.buffer is not b:
                return f"{residency!r} names {residency.buffer.label} as its buffer, but it is in {b.label}"
        if b.persistent:
            t = b.residencies[0].tensor
            if len(b.residencies) > 1 or t not in persistent:
                return f"{b.label} lives across steps, but it is not the buffer of a single persistent tensor"
            if t in members:
                return f"{t.name} has two persistent buffers"
            if t in s.program.double_buffered and b.nbytes < aligned(t.nbytes) + t.nbytes:
                return f"the buffer of double-buffered input {t.name} has {b.nbytes} bytes, too few for two places"
            members.add(t)
    return None


def wrong_between(schedules: Sequence[Schedule]) -> str | None:
    """An error if the fixed offset of a tensor that lives across steps differs between programs, or a program uses
    bytes that only others carry."""
    if wrong := _wrong_host(schedules):
        return wrong
    spans: dict[Tensor, tuple[int, int]] = {}
    for s in schedules:
        for t, span in _persistent_spans(s):
            if spans.setdefault(t, span) != span:
                return f"{t.name} lies at [{span[0]}, {span[1]}) in {s.program.name}, at {list(spans[t])} in another"
    for s in schedules:
        own = set(s.program.persistent)
        others = sorted((*span, t.name) for t, span in spans.items() if t not in own)
        for (_, end, a), (start, _, b) in pairwise(others):
            if start < end:
                return f"{a} and {b}, which live across steps, overlap"
        if touched := _overlap(s, s.buffers, others):
            return f"{s.program.name}: {touched}, which another program left there"
    return None


def _wrong_host(schedules: Sequence[Schedule]) -> str | None:
    """An error unless all programs share the same bytes of the host, and find each host-resident tensor at one place
    there.

    No program has anything else in these bytes (`wrong_place`), so it leaves alone what only others know."""
    host_resident: dict[Tensor, tuple[int, str]] = {}
    for s in schedules:
        if s.host_shared != schedules[0].host_shared:
            bytes_ = f"{s.host_shared} and {schedules[0].host_shared} bytes"
            return f"{s.program.name} and {schedules[0].program.name} share {bytes_} of the host"
        for t in s.program.host_resident:
            at = s.host_offset[t]
            there, other = host_resident.setdefault(t, (at, s.program.name))
            if there != at:
                return f"{t.name} lies on the host at {at} in {s.program.name}, at {there} in {other}"
    spans = sorted((at, at + aligned(t.nbytes), t.name) for t, (at, _) in host_resident.items())
    for (_, end, a), (start, _, b) in pairwise(spans):
        if start < end:
            return f"{a} and {b}, which live on the host, overlap"
    for s in schedules:
        for t in s.program.persistent:
            if t in host_resident:
                return f"{t.name} lives on the device in {s.program.name}, on the host in {host_resident[t][1]}"
    return None


def stale(programs: Iterable[Program]) -> str | None:
    """An error if an op could read a weight that other ranks have changed since it was made whole.

    Each rank has a shard of such a weight, and `net.all_gather` makes it whole. Before a program without gathers a
    machine gathers. A program that has some must gather each weight before its first reader, and again behind an update
    of the shard. Nothing else may write it, for that would be lost."""
    programs = list(programs)
    shard: dict[Tensor, Tensor] = {}
    for p in programs:
        shard |= {w: s for op in p.ops if _all_gathers(p, op) for s, w in zip(op.reads, op.writes, strict=True)}
    if not shard:
        return None
    whole = {s: w for w, s in shard.items()}
    for p in programs:
        complete = set() if any(_all_gathers(p, op) for op in p.ops) else set(shard)
        for op in p.ops:
            for t in op.reads:
                if t in shard and t not in complete:
                    return f"{p.name}: {op.name} reads {t.name}, of which it has its own shard alone"
            if _all_gathers(p, op):
                for s, w in zip(op.reads, op.writes, strict=True):
                    if shard[w] != s:
                        return f"{p.name}: {op.name} makes {w.name} of {s.name}, not of {shard[w].name}"
                complete.update(op.writes)
                continue
            for t in op.writes:
                if t in shard:
                    return f"{p.name}: {op.name} writes {t.name} itself, not its shard {shard[t].name}"
                complete.discard(whole.get(t, t))
    return None


def _all_gathers(p: Program, op: Op) -> bool:
    """Whether the op makes weights whole."""
    return op.on_net and {*op.reads, *op.writes} <= {*p.persistent}


def _persistent_spans(s: Schedule) -> Iterator[tuple[Tensor, tuple[int, int]]]:
    """(tensor, (start, end)) of each fixed offset."""
    for b in s.buffers:
        if b.persistent:
            yield b.residencies[0].tensor, (s.offset[b], s.offset[b] + b.nbytes)


def _overlap(s: Schedule, buffers: Iterable[Buffer], spans: Sequence[tuple[int, int, str]]) -> str | None:
    """An error if one of these buffers overlaps one of the spans, which are sorted and do not overlap."""
    for b in buffers:
        lo = s.offset[b]
        i = bisect_right(spans, lo + b.nbytes - 1, key=lambda span: span[0]) - 1
        if i >= 0 and spans[i][1] > lo:
            return f"{b.label} overlaps {spans[i][2]}"
    return None
