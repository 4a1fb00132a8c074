"""Random changes of a plan, most of which break it: of its offload intervals, gap by gap, and of who shares bytes,
residency by residency.

The changed plan is lowered and placed anew, so that its schedule obeys it in all else. Each change here is a function
(schedule, random) -> another schedule, or None where there is nothing to change in that way. The lowering raises
ValueError for a plan that contradicts itself.
"""

from __future__ import annotations

import random
from dataclasses import replace

from minidnn.memory.lowering.asap import asap
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import OffloadInterval, Plan, Slot
from minidnn.memory.schedule import Compute, Offload, Prefetch, Schedule, Wait
from tests.support.hunt import Change
from tests.support.mutate import with_instructions, without


def _with_plan(s: Schedule, **fields) -> Schedule:
    changed = place(lower(s.program, replace(s.plan, **fields)))
    return asap(changed) if s.plan.asap else changed


# ---- sharing per residency


def _residencies_that_share(plan: Plan) -> list:
    return [key for key in plan.share if isinstance(key, tuple)]


def share_one_more(s: Schedule, r: random.Random) -> Schedule | None:
    """One more residency takes the bytes of a tensor that its op reads."""
    plan = s.plan
    free = [
        (p, t)
        for p, op in enumerate(plan.order)
        for t in op.writes
        if op.reads and t not in op.reads and t not in plan.share and (t, p) not in plan.share
    ]
    pairs = [(p, t) for p, t in free if any(write == t for _, write in plan.order[p].inplace)]
    p, t = r.choice(pairs if pairs and r.random() < 0.7 else free)
    permitted = [read for read, write in plan.order[p].inplace if write == t]
    holder = r.choice(permitted) if permitted and r.random() < 0.8 else r.choice(plan.order[p].reads)
    return _with_plan(s, share={**plan.share, (t, p): holder})


def share_with_another(s: Schedule, r: random.Random) -> Schedule | None:
    """A residency that shares takes another tensor's bytes instead."""
    if not (keys := _residencies_that_share(s.plan)):
        return None
    key = r.choice(keys)
    others = [t for t in s.plan.order[key[1]].tensors if t != s.plan.share[key]]
    return _with_plan(s, share={**s.plan.share, key: r.choice(others)}) if others else None


def share_in_another_run(s: Schedule, r: random.Random) -> Schedule | None:
    """A run of an op shares bytes as another run of it does."""
    order = s.plan.order
    runs = [(key, p) for key in _residencies_that_share(s.plan) for p, op in enumerate(order) if op == order[key[1]]]
    runs = [(key, p) for key, p in runs if (key[0], p) not in s.plan.share]
    if not runs:
        return None
    key, p = r.choice(runs)
    return _with_plan(s, share={**s.plan.share, (key[0], p): s.plan.share[key]})


def share_a_slot(s: Schedule, r: random.Random) -> Schedule | None:
    """Two residencies that are on the device at the same time take the bytes of one slot."""
    begun = [
        residency for b in s.buffers for residency in b.residencies if residency.arrives is None and not b.persistent
    ]
    begun = [residency for residency in begun if residency.tensor in s.plan.order[residency.lo].writes]
    one = r.choice(begun)
    beside = [
        residency for residency in begun if residency is not one and residency.lo < one.hi and one.lo < residency.hi
    ]
    if not beside:
        return None
    slot, other = Slot("slot of two"), r.choice(beside)
    return _with_plan(s, share={**s.plan.share, (one.tensor, one.lo): slot, (other.tensor, other.lo): slot})


# ---- offload intervals per gap


def _changed(s: Schedule, old: OffloadInterval, **fields) -> Schedule:
    return _with_plan(
        s, offloads=tuple(replace(offload, **fields) if offload is old else offload for offload in s.plan.offloads)
    )


def _returning(s: Schedule) -> list[OffloadInterval]:
    return [offload for offload in s.plan.offloads if offload.prefetch_at is not None]


def out_too_soon(s: Schedule, r: random.Random) -> Schedule | None:
    """A copy out begins sooner."""
    offloads = [offload for offload in s.plan.offloads if offload.offload_at]
    if not offloads:
        return None
    offload = r.choice(offloads)
    return _changed(s, offload, offload_at=offload.offload_at - r.randint(1, min(offload.offload_at, 3)))


def never_out(s: Schedule, r: random.Random) -> Schedule | None:
    """Nothing is copied out, as if the host had the tensor already."""
    offloads = [offload for offload in s.plan.offloads if offload.offload_at is not None]
    return _changed(s, r.choice(offloads), offload_at=None) if offloads else None


def out_in_a_later_gap(s: Schedule, r: random.Random) -> Schedule | None:
    """Of a tensor that leaves twice, the copy out is made when it leaves again."""
    offloads = sorted(
        (offload for offload in _returning(s) if offload.free_at is not None), key=lambda offload: offload.free_at
    )
    twice = [
        (a, b)
        for i, a in enumerate(offloads)
        for b in offloads[i + 1 :]
        if a.tensor == b.tensor and a.offload_at is not None
    ]
    if not twice:
        return None
    first, later = r.choice(twice)
    changed = {first: replace(first, offload_at=None), later: replace(later, offload_at=later.free_at)}
    return _with_plan(s, offloads=tuple(changed.get(offload, offload) for offload in s.plan.offloads))


def back_too_soon(s: Schedule, r: random.Random) -> Schedule | None:
    """A copy back begins sooner, perhaps before the tensor has left."""
    offloads = [offload for offload in _returning(s) if offload.prefetch_at]
    if not offloads:
        return None
    offload = r.choice(offloads)
    return _changed(s, offload, prefetch_at=offload.prefetch_at - r.randint(1, min(offload.prefetch_at, 8)))


def arrives_too_late(s: Schedule, r: random.Random) -> Schedule | None:
    """Compute waits later for a copy back."""
    if not (offloads := _returning(s)):
        return None
    offload = r.choice(offloads)
    return _changed(s, offload, needed_at=min(offload.needed_at + r.randint(1, 3), len(s.plan.order) - 1))


# ---- the order of copies, and their waits


def back_in_another_order(s: Schedule, r: random.Random) -> Schedule | None:
    """Two copies back that begin at one point change places; the waits stay."""
    order = s.instructions
    pairs, at = [], []
    for i, x in enumerate(order):
        if isinstance(x, Compute):
            at = []
        elif isinstance(x, Prefetch):
            pairs += [(j, i) for j in at]
            at.append(i)
    if not pairs:
        return None
    i, j = r.choice(pairs)
    made = list(order)
    made[i], made[j] = order[j], order[i]
    return with_instructions(s, made)


def no_wait_for_a_copy(s: Schedule, r: random.Random) -> Schedule | None:
    """A stream does not wait for a copy."""
    order = s.instructions
    waits = [i for i, x in enumerate(order) if isinstance(x, Wait) and isinstance(order[x.on], (Offload, Prefetch))]
    return without(s, r.choice(waits)) if waits else None


def copy_waits_for_nothing(s: Schedule, r: random.Random) -> Schedule | None:
    """A stream of copies does not wait for compute."""
    waits = [i for i, x in enumerate(s.instructions) if isinstance(x, Wait) and x.stream in ("out", "in")]
    return without(s, r.choice(waits)) if waits else None


CHANGES: tuple[Change[Schedule], ...] = (
    share_one_more, share_with_another, share_in_another_run, share_a_slot,
    out_too_soon, never_out, out_in_a_later_gap, back_too_soon, arrives_too_late,
    back_in_another_order, no_wait_for_a_copy, copy_waits_for_nothing,
)  # fmt: skip
