"""Pinned memory on demand: bytes of the host are pinned for a tensor only while a copy uses them, as in vDNN++.

vDNN pins a place on the host for every tensor that leaves. In vDNN++ (Shriram et al., IPDPS 2019, by the authors'
code) a copy out pins the bytes that it needs. Then a thread moves them on into ordinary memory, perhaps packed, and
gives the pinned bytes back. It does so while forward runs: what it has not begun by then stays pinned. For a copy back
bytes are pinned once more.

Here nothing is allocated within a step. So the moments of all this are computed from the costs beforehand, and the
pinned bytes of a step are a pool with a fixed place for each passage: as small as packing finds, and as large as the
most bytes that vDNN++ would have pinned at once. What a thread cannot move in time stays pinned. So no copy waits for
pinned bytes if the costs are right. Whether they are or not, a stream waits where bytes are used again.

A ring (memory/lowering/staging.py) is the other way: it has a size that the user gives, and copies wait for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from minidnn.costs import Costs, Staging
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import Span
from minidnn.memory.lowering.staging import Layout, emitted, grain_of, staged, travelling
from minidnn.memory.packing import Problem, pack
from minidnn.memory.schedule import Listing, Offload, Prefetch, StagingSlot, aligned
from minidnn.program import Op, Tensor


def with_staging(listing: Listing, costs: Costs) -> Listing:
    """The listing with its travelling tensors sent through pinned bytes that are used again, if the costs have a
    Staging. Raises RingTooSmall."""
    if costs.staging is None:
        return listing
    if costs.staging.on_demand:
        return emitted(listing, _on_demand(listing, costs, costs.staging), costs.staging)
    return staged(listing, costs.staging)


@dataclass(eq=False)
class _Passage:
    """Pinned bytes that hold a tensor on its way.

    Copy k of those that travel has position 2 k, and the Fetch before it position 2 k - 1.

    first, last: positions of the instructions that use the bytes first and last
    start, end:  seconds from the first's beginning to the last's end
    """

    tensor: Tensor
    first: int
    last: int
    start: float
    end: float


def _on_demand(listing: Listing, costs: Costs, staging: Staging) -> Layout:
    """The staging slots of all copies that travel."""
    copies = travelling(listing)
    spans = {span.index: span for span in simulate(listing, costs).spans}
    times = [spans[i] for i, _ in copies]
    readers = _readers(copies)
    stashed = _stashed(copies, times, readers, staging, _turn(listing, spans))
    again = _latest(copies, times, [r for k in stashed for r in readers[k]], staging)  # {copy back: its Fetch begins}

    def passage(first: int, last: int, start: float, end: float) -> _Passage:
        return _Passage(copies[(first + 1) // 2][1].residency.tensor, first, last, start, end)

    leaving = {}
    for k, back in readers.items():
        last = k if k in stashed or not back else back[-1]
        leaving[k] = passage(2 * k, 2 * last, times[k].start, stashed.get(k, times[last].end))
    coming = {r: passage(2 * r - 1, 2 * r, begin, times[r].end) for r, begin in again.items()}
    every = [*leaving.values(), *coming.values()]
    at, top = _placed(every, grain_of(staging))
    slot = {
        p: StagingSlot(p.tensor, where, aligned(p.tensor.nbytes, grain_of(staging)))
        for p, where in zip(every, at, strict=True)
    }
    layout = Layout(top=top, stashed={slot[leaving[k]] for k in stashed})
    for k, back in readers.items():
        layout.staging_slots[copies[k][0]] = slot[leaving[k]]
        for r in back:
            layout.staging_slots[copies[r][0]] = slot[coming[r] if r in coming else leaving[k]]
    for r, p in coming.items():
        layout.fetches[copies[r - 1][0]].append(slot[p])
        layout.fetched[copies[r][0]] = slot[p]
    return layout


def _readers(copies: Sequence[tuple[int, Offload | Prefetch]]) -> dict[int, list[int]]:
    """{copy out: the copies back of what it brought}, as indices of `copies`."""
    readers: dict[int, list[int]] = {}
    out: dict[Tensor, int] = {}
    for k, (_, x) in enumerate(copies):
        if isinstance(x, Offload):
            out[x.residency.tensor], readers[k] = k, []
        elif x.residency.tensor in out:  # else it has never left, which the proof will report
            readers[out[x.residency.tensor]].append(k)
    return readers


def _turn(listing: Listing, spans: Mapping[int, Span]) -> float:
    """When the last op of forward ends, in seconds; what runs again does not count."""
    forward, seen = set(listing.program.ops[: listing.program.forward]), set[Op]()
    end = 0.0
    for op, index in zip(listing.plan.order, listing.points, strict=True):
        if op in forward and op not in seen:
            seen.add(op)
            end = max(end, spans[index].end)
    return end


def _stashed(
    copies: Sequence[tuple[int, Offload | Prefetch]],
    times: Sequence[Span],
    readers: Mapping[int, Sequence[int]],
    staging: Staging,
    turn: float,
) -> dict[int, float]:
    """{copy out: when what it brought lies in ordinary memory}: of those that the thread begins with while forward
    runs, and ends with before they must come back."""
    wanted = _latest(copies, times, sorted(r for back in readers.values() for r in back), staging)
    result: dict[int, float] = {}
    free = 0.0
    for k, back in readers.items():
        begin = max(free, times[k].end)
        end = begin + staging.stash_seconds(copies[k][1].residency.tensor.nbytes, staging.disk is not None)
        if back and begin < turn and end <= wanted[back[0]]:
            result[k] = free = end
    return result


def _latest(
    copies: Sequence[tuple[int, Offload | Prefetch]], times: Sequence[Span], back: Sequence[int], staging: Staging
) -> dict[int, float]:
    """{copy back: when its Fetch must begin, so that no copy waits for one}, of these copies."""
    result: dict[int, float] = {}
    before = float("inf")
    for r in sorted(back, reverse=True):
        seconds = staging.fetch_seconds(copies[r][1].residency.tensor.nbytes, staging.disk is not None)
        before = result[r] = min(before, times[r].start) - seconds
    return result


def _placed(passages: Sequence[_Passage], grain: int) -> tuple[list[int], int]:
    """Offsets of the passages in the pool, and its bytes: no more than a place for each tensor would take.

    One takes another's bytes only if it begins when the other has ended, in time, and behind it in the list, so that
    there is an instruction to wait for.
    """
    if not passages:
        return [], 0
    by_start = sorted(passages, key=lambda p: p.start)
    starts = [p.start for p in by_start]
    furthest = list(accumulate((p.first for p in by_start), max))  # of the positions of those that have begun
    rows = []
    for p in passages:
        begun = bisect_left(starts, p.end)
        hi = max(p.last, furthest[begun - 1] if begun else p.first) + 1
        rows.append((p.first, hi, aligned(p.tensor.nbytes, grain)))
    packed = pack(Problem(*np.array(rows, np.int64).T))
    own: dict[Tensor, int] = {}
    top = 0
    for p in passages:
        if p.tensor not in own:
            own[p.tensor], top = top, top + aligned(p.tensor.nbytes, grain)
    if packed.height <= top:
        return packed.offset.tolist(), packed.height
    return [own[p.tensor] for p in passages], top
