"""Random changes of a schedule of several ranks that touch its communications."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

from minidnn.memory.schedule import Compute, Free, Instruction, Prefetch, Residency, Schedule, Wait
from tests.support.hunt import Change
from tests.support.mutate import with_instructions, without


def communications(s: Schedule) -> list[int]:
    """The positions of the communications."""
    return [i for i, x in enumerate(s.instructions) if isinstance(x, Compute) and x.op.on_net]


def dropped_wait(s: Schedule, r: random.Random) -> Schedule | None:
    """The network does not wait for compute or a copy, or one of these does not wait for the network."""
    found = _waits(s)
    return without(s, r.choice(found)) if found else None


def earlier_wait(s: Schedule, r: random.Random) -> Schedule | None:
    """Such a wait is for an instruction before the one that it was for."""
    found = _waits(s)
    if not found:
        return None
    i = r.choice(found)
    wait = s.instructions[i]
    assert isinstance(wait, Wait)
    before = [k for k in _issued(s) if k < wait.on]
    return _changed(s, i, on=r.choice(before)) if before else None


def other_stream_waits(s: Schedule, r: random.Random) -> Schedule | None:
    """Another stream waits."""
    found = _waits(s)
    return _changed(s, r.choice(found), stream=r.choice(["compute", "out", "in", "net"])) if found else None


def dropped(s: Schedule, r: random.Random) -> Schedule | None:
    """A communication is left out."""
    i = r.choice(communications(s))
    waits = {k for k, x in enumerate(s.instructions) if isinstance(x, Wait) and x.on == i}
    kept = [k for k in range(len(s.instructions)) if k != i and k not in waits]
    new = {old: k for k, old in enumerate(kept)}
    return with_instructions(s, [s.instructions[k] for k in kept], new.__getitem__)


def repeated(s: Schedule, r: random.Random) -> Schedule | None:
    """A communication is made once more."""
    i = r.choice(communications(s))
    k = r.randint(i + 1, min(len(s.instructions), i + 20))
    xs = s.instructions
    return with_instructions(s, [*xs[:k], xs[i], *xs[k:]], lambda on: on + (on >= k))


def swapped(s: Schedule, r: random.Random) -> Schedule | None:
    """Two communications take each other's places, as if one rank had another order."""
    found = communications(s)
    if len(found) < 2:
        return None
    k = r.randrange(len(found) - 1)
    i, j = found[k], found[k + 1]
    order = list(range(len(s.instructions)))
    order[i], order[j] = j, i
    return _ordered(s, order)


def moved(s: Schedule, r: random.Random) -> Schedule | None:
    """A communication is made earlier or later: of a gradient before its sum, of a shard before its update."""
    i = r.choice(communications(s))
    return _moved(s, i, r.choice([-40, -10, -3, -1, 1, 3, 10, 40]))


def early_reader(s: Schedule, r: random.Random) -> Schedule | None:
    """An op comes before the communication that brings what it reads, or just behind, before compute waits: forward
    before the all-gather, a merge before the all-to-all."""
    made = {id(w): i for i in communications(s) for w in s.instructions[i].writes}  # type: ignore[union-attr]
    readers = [
        (i, max(made[id(y)] for y in x.reads if id(y) in made))
        for i, x in enumerate(s.instructions)
        if isinstance(x, Compute) and not x.op.on_net and any(made.get(id(y), i) < i for y in x.reads)
    ]
    if not readers:
        return None
    i, by = r.choice(readers)
    return _moved(s, i, by - i + r.choice([0, 0, 1]))


def late_maker(s: Schedule, r: random.Random) -> Schedule | None:
    """What writes a value that is sent comes after the communication: an all-to-all of a gradient before its sum."""
    sent = {id(y): i for i in communications(s) for y in s.instructions[i].reads}  # type: ignore[union-attr]
    makers = [
        (i, min(sent[id(y)] for y in x.writes if sent.get(id(y), -1) > i))
        for i, x in enumerate(s.instructions)
        if isinstance(x, Compute) and not x.op.on_net and any(sent.get(id(y), -1) > i for y in x.writes)
    ]
    if not makers:
        return None
    i, by = r.choice(makers)
    return _moved(s, i, by - i)


def early_update(s: Schedule, r: random.Random) -> Schedule | None:
    """A shard is updated before the all-gather that reads its former value, or a stale one stays: ops of updates
    move."""
    found = [i for i, x in enumerate(s.instructions) if isinstance(x, Compute) and x.op.during.value == "update"]
    found = [i for i in found if i not in set(communications(s))]
    return _moved(s, r.choice(found), -r.choice([2, 5, 20, 80, 300])) if found else None


def early_free(s: Schedule, r: random.Random) -> Schedule | None:
    """Bytes that a communication uses are freed while it runs, or before it."""
    used = {y.buffer: i for i in communications(s) for y in _residencies(s.instructions[i])}
    frees = [i for i, x in enumerate(s.instructions) if isinstance(x, Free) and used.get(x.buffer, i) < i]
    if not frees:
        return None
    i = r.choice(frees)
    by = used[s.instructions[i].buffer]  # type: ignore[union-attr]
    return _moved(s, i, by - i + r.choice([0, 1]))


def other_operand(s: Schedule, r: random.Random) -> Schedule | None:
    """A communication is given another residency to read or to write."""
    i = r.choice(communications(s))
    x = s.instructions[i]
    assert isinstance(x, Compute)
    residencies = [residency for b in s.buffers for residency in b.residencies]
    field = r.choice(["reads", "writes"])
    old = r.choice(getattr(x, field))
    like = [y for y in residencies if y.tensor.nbytes == old.tensor.nbytes and y is not old]
    new = r.choice(like if like and r.random() < 0.8 else residencies)
    return _changed(s, i, **{field: tuple(new if y is old else y for y in getattr(x, field))})


def crossed(s: Schedule, r: random.Random) -> Schedule | None:
    """A communication's results take each other's places: a shard of one weight becomes part of another."""
    wide = [i for i in communications(s) if len(s.instructions[i].writes) > 1]  # type: ignore[union-attr]
    if not wide:
        return None
    i = r.choice(wide)
    field = r.choice(["reads", "writes"])
    some = list(getattr(s.instructions[i], field))
    a, b = r.sample(range(len(some)), 2)
    some[a], some[b] = some[b], some[a]
    return _changed(s, i, **{field: tuple(some)})


def other_stream(s: Schedule, r: random.Random) -> Schedule | None:
    """A communication is made on a stream of others, or another instruction on the network's."""
    found = communications(s)
    if r.random() < 0.5:
        return _changed(s, r.choice(found), stream=r.choice(["compute", "out", "in"]))
    rest = [i for i in _issued(s) if i not in set(found)]
    return _changed(s, r.choice(rest), stream="net")


def overwritten(s: Schedule, r: random.Random) -> Schedule | None:
    """Somebody else's bytes lie where a communication reads or writes."""
    used = {y.buffer for i in communications(s) for y in _residencies(s.instructions[i])}
    b = r.choice([b for b in s.buffers if b in used])
    c = r.choice(s.buffers)
    out = copy.copy(s)
    out.offset = {**s.offset, c: s.offset[b] + 256 * r.choice([-1, 0, 0, 1])}
    return out if out.offset[c] != s.offset[c] else None


def other_ranks(s: Schedule, r: random.Random) -> Schedule | None:
    """A communication is one of another number of ranks."""
    i = r.choice(communications(s))
    x = s.instructions[i]
    assert isinstance(x, Compute)
    attrs = replace(x.op.attrs, ranks=x.op.attrs.ranks + r.choice([-1, 1, 2]))
    return _changed(s, i, op=replace(x.op, attrs=attrs))


def copied_while_sent(s: Schedule, r: random.Random) -> Schedule | None:
    """A copy back comes earlier, into bytes that a communication may still use."""
    found = [i for i, x in enumerate(s.instructions) if isinstance(x, Prefetch)]
    at = communications(s)
    late = [i for i in found if any(k < i for k in at)]
    if not late:
        return None
    i = r.choice(late)
    return _moved(s, i, r.choice([k for k in at if k < i]) - i + r.choice([0, 1]))


CHANGES: tuple[Change[Schedule], ...] = (
    dropped_wait, earlier_wait, other_stream_waits, dropped, repeated, swapped, moved, early_reader, late_maker,
    early_update, early_free, other_operand, crossed, other_stream, overwritten, other_ranks, copied_while_sent,
)  # fmt: skip


def _issued(s: Schedule) -> list[int]:
    """The positions of instructions that a stream runs."""
    return [i for i, x in enumerate(s.instructions) if isinstance(x, Compute) or hasattr(x, "residency")]


def _waits(s: Schedule) -> list[int]:
    """The waits of the network and for it."""
    at = set(communications(s))
    return [i for i, x in enumerate(s.instructions) if isinstance(x, Wait) and (x.stream == "net" or x.on in at)]


def _residencies(x: Instruction) -> tuple[Residency, ...]:
    assert isinstance(x, Compute)
    return (*x.reads, *x.writes)


def _changed(s: Schedule, i: int, **fields: object) -> Schedule:
    xs = list(s.instructions)
    xs[i] = replace(xs[i], **fields)  # type: ignore[arg-type]
    return with_instructions(s, xs)


def _moved(s: Schedule, i: int, by: int) -> Schedule | None:
    """The schedule with instruction i moved by so many places."""
    to = min(max(i + by, 0), len(s.instructions) - 1)
    order = list(range(len(s.instructions)))
    order.insert(to, order.pop(i))
    return _ordered(s, order) if to != i else None


def _ordered(s: Schedule, order: list[int]) -> Schedule:
    new = {old: k for k, old in enumerate(order)}
    return with_instructions(s, [s.instructions[k] for k in order], new.__getitem__)
