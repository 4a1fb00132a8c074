"""Random changes of what lives on the host, in the schedules of a net's programs; most of them break it.

Each change is a function (schedules, random) -> other schedules, or None where there is nothing to change in that way.
The lowering raises ValueError for a plan that contradicts itself.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from minidnn.memory.lowering.asap import asap
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import persistent_layout, place
from minidnn.memory.plan import OffloadInterval, Plan, complete
from minidnn.memory.schedule import Compute, Offload, Prefetch, Schedule, Wait, aligned
from minidnn.program import Tensor
from tests.support.hunt import Change
from tests.support.mutate import with_instructions, without
from tests.support.programs import costs

Schedules = list[Schedule]


def lost(schedules: Sequence[Schedule]) -> str | None:
    """An oracle: why these programs, each of which may be right, do not leave to each other what lives across steps.

    It looks at cells of 256 bytes, where a machine finds them: host-resident tensors at their offsets on the host, all
    else behind the places of the programs before."""
    base, where, own = 0, [], []
    for s in schedules:
        host_resident, at = set(s.program.host_resident), {}
        if not s.plan.host_resident <= host_resident:
            return f"{s.program.name} does not do what its plan says"
        for t in host_resident:
            if t not in s.host_offset:
                return f"{t.name} has no place in {s.program.name}"
            at[t] = "host", *_cells(s.host_offset[t], t.nbytes)
        for b in s.buffers:
            if b.persistent:
                at[b.residencies[0].tensor] = "arena", *_cells(s.offset[b], b.nbytes)
        twice = set(s.program.inputs)
        mine = [
            ("host", *_cells(base + offset, aligned(t.nbytes) * (2 if t in twice else 1)))
            for t, offset in s.host_offset.items()
            if t not in host_resident
        ]
        where.append(at)
        own.append([*mine, *(("arena", *_cells(s.offset[b], b.nbytes)) for b in s.buffers if not b.persistent)])
        base += s.host_bytes - s.host_shared
    places: dict[Tensor, tuple] = {}
    for s, at in zip(schedules, where, strict=True):
        for t, span in at.items():
            if places.setdefault(t, span) != span:
                return f"{t.name} is at {span} in {s.program.name}, and elsewhere in another"
    every = list(places.items())
    for i, (t, span) in enumerate(every):
        for u, other in every[:i]:
            if _meet(span, other):
                return f"{t.name} and {u.name} share bytes"
    for i, s in enumerate(schedules):
        for span in own[i]:
            for t, persistent in every:
                if _meet(span, persistent) and (span[0] == "host" or t not in where[i]):
                    return f"{s.program.name} writes over {t.name}"
            if any(_meet(span, other) for others in own[:i] for other in others if span[0] == "host"):
                return f"{s.program.name} writes over another's inputs"
    return None


def _cells(at: int, nbytes: int) -> tuple[int, int]:
    return at // 256, -(-(at + nbytes) // 256)


def _meet(a: tuple, b: tuple) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def _with(schedules: Schedules, old: Schedule, new: Schedule | None) -> Schedules | None:
    return None if new is None else [new if s is old else s for s in schedules]


# ---- offload intervals


def _planned(schedules: Schedules, s: Schedule, offloads: Sequence[OffloadInterval]) -> Schedules:
    at = persistent_layout(*(other.program for other in schedules))
    made = place(lower(s.program, replace(s.plan, offloads=tuple(offloads))), at)
    return [(asap(made) if s.plan.asap else made) if other is s else other for other in schedules]


def _travel(
    change: Callable[[OffloadInterval, random.Random], OffloadInterval | None],
    wanted: Callable[[OffloadInterval], bool],
) -> Change[Schedules]:
    """The change that makes another offload interval of one, or none."""

    def changed(schedules: Schedules, r: random.Random) -> Schedules | None:
        s = r.choice(schedules)
        offloads = [
            offload for offload in s.plan.offloads if offload.tensor in s.program.host_resident and wanted(offload)
        ]
        if not offloads:
            return None
        offload = r.choice(offloads)
        other = change(offload, r)
        return _planned(
            schedules, s, [x for x in (other if y is offload else y for y in s.plan.offloads) if x is not None]
        )

    changed.__name__ = change.__name__
    return changed


def never_written_back(offload: OffloadInterval, r: random.Random) -> OffloadInterval | None:
    return None


def gone_without_a_copy(offload: OffloadInterval, r: random.Random) -> OffloadInterval | None:
    return replace(offload, offload_at=None)


def written_back_before_the_update(offload: OffloadInterval, r: random.Random) -> OffloadInterval | None:
    return replace(offload, offload_at=max(0, offload.offload_at - r.randint(1, 8)))


def read_before_it_comes(offload: OffloadInterval, r: random.Random) -> OffloadInterval | None:
    return replace(offload, needed_at=offload.needed_at + r.randint(1, 3))


def gone_too_soon(offload: OffloadInterval, r: random.Random) -> OffloadInterval | None:
    return replace(offload, free_at=max(0, offload.free_at - r.randint(1, 4)))


# ---- instructions


def _copies(s: Schedule) -> list[int]:
    return [
        i
        for i, x in enumerate(s.instructions)
        if isinstance(x, (Offload, Prefetch)) and x.residency.tensor in s.program.host_resident
    ]


def copy_left_out(schedules: Schedules, r: random.Random) -> Schedules | None:
    s = r.choice(schedules)
    copies = _copies(s)
    return _with(schedules, s, without(s, r.choice(copies))) if copies else None


def copy_not_awaited(schedules: Schedules, r: random.Random) -> Schedules | None:
    s = r.choice(schedules)
    copies = set(_copies(s))
    waits = [i for i, x in enumerate(s.instructions) if isinstance(x, Wait) and x.on in copies]
    return _with(schedules, s, without(s, r.choice(waits))) if waits else None


def copy_waits_for_nothing(schedules: Schedules, r: random.Random) -> Schedules | None:
    s = r.choice(schedules)
    waits = []
    for i in _copies(s):
        before = i - 1
        while isinstance(s.instructions[before], Wait):
            waits += [before] if s.instructions[before].stream == s.instructions[i].stream else []
            before -= 1
    return _with(schedules, s, without(s, r.choice(waits))) if waits else None


def another_is_copied(schedules: Schedules, r: random.Random) -> Schedules | None:
    s = r.choice(schedules)
    copies = _copies(s)
    if not copies:
        return None
    i = r.choice(copies)
    residencies = [
        residency for b in s.buffers for residency in b.residencies if residency is not s.instructions[i].residency
    ]
    made = list(s.instructions)
    made[i] = replace(made[i], residency=r.choice(residencies))
    return _with(schedules, s, with_instructions(s, made))


def copy_before_the_op(schedules: Schedules, r: random.Random) -> Schedules | None:
    """A copy, with the waits before it, is issued before the op before."""
    s = r.choice(schedules)
    copies = _copies(s)
    if not copies:
        return None
    i = r.choice(copies)
    ops = [k for k, x in enumerate(s.instructions[:i]) if isinstance(x, Compute)]
    if not ops:
        return None
    order = list(range(len(s.instructions)))
    order.insert(ops[-1], order.pop(i))
    new = {old: k for k, old in enumerate(order)}
    return _with(schedules, s, with_instructions(s, [s.instructions[k] for k in order], new.__getitem__))


# ---- places


def _with_host_residents(schedules: Schedules, r: random.Random) -> Schedule:
    return r.choice([s for s in schedules if len(s.program.host_resident) > 1])


def _placed(schedules: Schedules, s: Schedule, moved: dict[Tensor, int], **fields) -> Schedules:
    made = copy.copy(s)
    made.host_offset = {**s.host_offset, **moved}
    for name, value in fields.items():
        setattr(made, name, value)
    return [made if other is s else other for other in schedules]


def two_change_places(schedules: Schedules, r: random.Random) -> Schedules | None:
    s = _with_host_residents(schedules, r)
    t, u = r.sample(s.program.host_resident, 2)
    return _placed(schedules, s, {t: s.host_offset[u], u: s.host_offset[t]})


def elsewhere_in_one_program(schedules: Schedules, r: random.Random) -> Schedules | None:
    s = _with_host_residents(schedules, r)
    t = r.choice(s.program.host_resident)
    return _placed(schedules, s, {t: max(0, s.host_offset[t] + 256 * r.choice([-9, -2, -1, 1, 2, 9]))})


def two_at_one_place_in_all(schedules: Schedules, r: random.Random) -> Schedules | None:
    t, u = r.sample(sorted({t for s in schedules for t in s.program.host_resident}, key=lambda t: t.name), 2)
    found = []
    for s in schedules:
        made = copy.copy(s)
        made.host_offset = dict(s.host_offset)
        if t in s.program.host_resident:
            made.host_offset[t] = next(o.host_offset[u] for o in schedules if u in o.program.host_resident)
        found.append(made)
    return found


def an_input_lies_there(schedules: Schedules, r: random.Random) -> Schedules | None:
    """A batch is written over a tensor that lives on the host, perhaps one that only another program knows."""
    s = r.choice(schedules)
    at = r.choice([offset for o in schedules for t, offset in o.host_offset.items() if t in o.program.host_resident])
    others = [t for t in s.host_offset if t not in s.program.host_resident]
    return _placed(schedules, s, {r.choice(others): at})


def other_bytes_are_shared(schedules: Schedules, r: random.Random) -> Schedules | None:
    s = r.choice(schedules)
    return _placed(schedules, s, {}, host_shared=s.host_shared + 256 * r.choice([-9, -1, 1, 9]))


def no_place(schedules: Schedules, r: random.Random) -> Schedules | None:
    s = _with_host_residents(schedules, r)
    made, t = copy.copy(s), r.choice(s.program.host_resident)
    made.host_offset = {u: at for u, at in s.host_offset.items() if u != t}
    return [made if other is s else other for other in schedules]


def another_offset_in_one_program(schedules: Schedules, r: random.Random) -> Schedules | None:
    """One program has on the device what lives on the host in the others."""
    s = _with_host_residents(schedules, r)
    t = r.choice(s.program.host_resident)
    if sum(t in o.program.host_resident for o in schedules) < 2:
        return None
    host_resident = tuple(u for u in s.program.host_resident if u != t)
    program = replace(s.program, persistent=(*s.program.persistent, t), host_resident=host_resident)
    plan = complete(program, costs(), Plan(algorithm=s.plan.algorithm))
    at = persistent_layout(*(o.program for o in schedules if o is not s), program)
    return _with(schedules, s, place(lower(program, plan), at))


def planned_and_not_done(schedules: Schedules, r: random.Random) -> Schedules | None:
    """The plan has on the host what the schedule has on the device."""
    s = r.choice(schedules)
    if not s.program.persistent:
        return None
    made = copy.copy(s)
    made.plan = replace(s.plan, host_resident=s.plan.host_resident | {r.choice(s.program.persistent)})
    return _with(schedules, s, made)


def _leaves(offload: OffloadInterval) -> bool:
    return offload.offload_at is not None and offload.prefetch_at is None


CHANGES: tuple[Change[Schedules], ...] = (
    _travel(never_written_back, _leaves),
    _travel(gone_without_a_copy, _leaves),
    _travel(written_back_before_the_update, _leaves),
    _travel(read_before_it_comes, lambda offload: offload.needed_at is not None),
    _travel(gone_too_soon, lambda offload: offload.free_at is not None),
    copy_left_out,
    copy_not_awaited,
    copy_waits_for_nothing,
    another_is_copied,
    copy_before_the_op,
    two_change_places,
    elsewhere_in_one_program,
    two_at_one_place_in_all,
    an_input_lies_there,
    other_bytes_are_shared,
    no_place,
    another_offset_in_one_program,
    planned_and_not_done,
)
