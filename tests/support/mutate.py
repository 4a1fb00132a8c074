"""Random changes of a schedule, most of which break it."""

from __future__ import annotations

import copy
import random
from collections import Counter
from dataclasses import replace

from minidnn.memory.schedule import Alloc, Buffer, Compute, Free, Offload, Prefetch, Residency, Schedule, Wait


def without(s: Schedule, i: int) -> Schedule:
    return with_instructions(s, [x for k, x in enumerate(s.instructions) if k != i], lambda k: k - (k > i))


def with_instructions(s: Schedule, instructions, renumber=lambda k: k) -> Schedule:
    """The schedule with these instructions. Each Compute's run is counted anew, so that its number does not reveal the
    change.

    renumber: returns the new index of the instruction that a Wait refers to."""
    out, runs = copy.copy(s), Counter()
    made = []
    for x in instructions:
        if isinstance(x, Wait):
            x = replace(x, on=renumber(x.on))
        elif isinstance(x, Compute):
            x = replace(x, run=runs[x.op])
            runs[x.op] += 1
        made.append(x)
    out.instructions = tuple(made)
    return out


KINDS = ["drop", "drop wait", "swap", "move", "shift", "swap places", "retarget", "wait's stream", "algorithm", "stay"]


KINDS += ["drop wait", "stream", "operand", "drop run", "run again", "host place", "buffer"]


def mutate(s: Schedule, r: random.Random) -> Schedule:
    """One random change of a kind that a faulty lowering or placement could make."""
    return mutated(s, r, r.choice(KINDS))


def mutated(s: Schedule, r: random.Random, kind: str) -> Schedule:
    """One random change of this kind; the schedule itself if it has nothing to change in that way."""
    n = len(s.instructions)
    at = {cls: [i for i, x in enumerate(s.instructions) if isinstance(x, cls)] for cls in (Wait, Compute, Offload)}
    copies = [i for i, x in enumerate(s.instructions) if isinstance(x, (Offload, Prefetch))]
    residencies = [residency for b in s.buffers for residency in b.residencies]

    def changed(i, **fields) -> Schedule:
        xs = list(s.instructions)
        xs[i] = replace(xs[i], **fields)
        return with_instructions(s, xs)

    def inserted(i, x) -> Schedule:
        return with_instructions(s, [*s.instructions[:i], x, *s.instructions[i:]], lambda k: k + (k >= i))

    if kind == "drop":
        return without(s, r.randrange(n))
    if kind == "drop wait" and at[Wait]:
        return without(s, r.choice(at[Wait]))
    if kind == "drop run":
        again = [i for i in at[Compute] if s.instructions[i].run]
        return without(s, r.choice(again)) if again else s
    if kind == "run again":
        i = r.choice(at[Compute])
        return inserted(r.randint(i + 1, min(n, i + r.choice([2, 8, 40]))), s.instructions[i])
    if kind in ("swap", "move"):
        i, j = sorted(r.sample(range(n), 2))
        if kind == "swap":
            j = min(i + 1, n - 1)
        order = list(range(n))
        order.insert(j, order.pop(i))
        new = {old: k for k, old in enumerate(order)}
        return with_instructions(s, [s.instructions[k] for k in order], new.__getitem__)
    if kind == "retarget" and at[Wait]:
        i = r.choice(at[Wait])
        return changed(i, on=r.randrange(max(i, 1)))
    if kind == "wait's stream" and at[Wait]:
        return changed(r.choice(at[Wait]), stream=r.choice(["compute", "out", "in", "store", "load"]))
    if kind == "stream":
        return changed(r.choice([*at[Compute], *copies, *copies]), stream=r.choice(["compute", "out", "in"]))
    if kind == "algorithm":
        i = r.choice(at[Compute])
        return changed(i, algorithm=replace(s.instructions[i].algorithm, name="other"))
    if kind == "stay":
        return changed(r.choice(copies), residency=r.choice(residencies))
    if kind == "operand":
        i = r.choice([i for i in at[Compute] if s.instructions[i].reads])  # the host's ops have no residencies
        x = s.instructions[i]
        field = r.choice(["reads", "writes", "workspace"])
        if field == "workspace":
            return changed(i, workspace=r.choice([None, *residencies]))
        old = r.choice(getattr(x, field))
        same = [residency for residency in residencies if residency.tensor == old.tensor and residency is not old]
        new = r.choice(same if same and r.random() < 0.8 else residencies)
        return changed(i, **{field: tuple(new if residency is old else residency for residency in getattr(x, field))})
    out = copy.copy(s)
    out.offset, out.host_offset = dict(s.offset), dict(s.host_offset)
    b, c = r.choice(s.buffers), r.choice(s.buffers)
    if kind == "shift":
        out.offset[b] += 256 * r.choice([-64, -8, -1, 1, 8, 64, 300])
    elif kind == "swap places":
        out.offset[b], out.offset[c] = s.offset[c], s.offset[b]
    elif kind == "host place":
        t, u = r.choice(list(s.host_offset)), r.choice(list(s.host_offset))
        out.host_offset[t] = r.choice([s.host_offset[u], s.host_offset[t] + 256 * r.choice([-64, -1, 1, 64])])
    elif kind == "buffer":  # move a residency into another buffer, where its bytes may not be free
        at_b = [residency for residency in b.residencies if not b.persistent]
        if at_b and not c.persistent and c.nbytes >= max(residency.tensor.nbytes for residency in at_b):
            return _moved(s, r.choice(at_b), b, c)
    return out


def _moved(s: Schedule, residency: Residency, b: Buffer, c: Buffer) -> Schedule:
    """The schedule with `residency` moved from buffer b to c. All of its buffers and residencies are copied."""
    buffers = {old: copy.copy(old) for old in s.buffers}
    new = {id(x): copy.copy(x) for old in s.buffers for x in old.residencies}
    for old, made in buffers.items():
        made.residencies = [new[id(x)] for x in old.residencies if x is not residency] + (
            [new[id(residency)]] if old is c else []
        )
        for x in made.residencies:
            x.buffer = made

    def of(x):
        if isinstance(x, (Alloc, Free)):
            return replace(x, buffer=buffers[x.buffer])
        if isinstance(x, (Offload, Prefetch)):
            return replace(x, residency=new[id(x.residency)])
        if isinstance(x, Compute):
            reads, writes = (tuple(new[id(y)] for y in ys) for ys in (x.reads, x.writes))
            return replace(x, reads=reads, writes=writes, workspace=new[id(x.workspace)] if x.workspace else None)
        return x

    empty = {made for made in buffers.values() if not made.residencies}
    gone = [isinstance(x, (Alloc, Free)) and buffers[x.buffer] in empty for x in s.instructions]
    out = with_instructions(
        s, [of(x) for x, drop in zip(s.instructions, gone, strict=True) if not drop], lambda k: k - sum(gone[:k])
    )
    out.buffers = tuple(made for made in buffers.values() if made not in empty)
    out.offset = {made: s.offset[old] for old, made in buffers.items()}
    return out
