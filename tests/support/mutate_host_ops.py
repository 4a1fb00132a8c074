"""Random changes of a schedule that touch the ops that the host runs, and the copies that bring what they read or take
away what they write."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

from minidnn.memory.schedule import Compute, Offload, Prefetch, Schedule, Wait
from tests.support.hunt import Change
from tests.support.mutate import with_instructions, without

FAR = (1, 2, 5, 20, 80)


def by_host(s: Schedule) -> list[int]:
    """The positions of the ops that the host runs."""
    return [i for i, x in enumerate(s.instructions) if isinstance(x, Compute) and x.stream == "host"]


def copies(s: Schedule, kind: type) -> list[int]:
    """The positions of the copies of what these ops use."""
    used = {t for i in by_host(s) for t in s.instructions[i].op.tensors}  # type: ignore[union-attr]
    return [i for i, x in enumerate(s.instructions) if isinstance(x, kind) and x.residency.tensor in used]


def _waits(s: Schedule) -> list[int]:
    """Those of the host, for the host, and for copies of what it uses."""
    about = {*by_host(s), *copies(s, Offload), *copies(s, Prefetch)}
    return [i for i, x in enumerate(s.instructions) if isinstance(x, Wait) and (x.stream == "host" or x.on in about)]


def _changed(s: Schedule, i: int, **fields) -> Schedule:
    xs = list(s.instructions)
    xs[i] = replace(xs[i], **fields)
    return with_instructions(s, xs)


def _moved(s: Schedule, i: int, by: int) -> Schedule | None:
    j = max(0, min(len(s.instructions) - 1, i + by))
    order = list(range(len(s.instructions)))
    order.insert(j, order.pop(i))
    new = {old: k for k, old in enumerate(order)}
    return None if i == j else with_instructions(s, [s.instructions[k] for k in order], new.__getitem__)


def dropped_wait(s: Schedule, r: random.Random) -> Schedule | None:
    """Of the host for a gradient, or of a copy or compute for the host or a gradient's copy."""
    return without(s, r.choice(_waits(s)))


def earlier_wait(s: Schedule, r: random.Random) -> Schedule | None:
    i = r.choice(_waits(s))
    on = s.instructions[i].on  # type: ignore[union-attr]
    before = [k for k in range(on) if hasattr(s.instructions[k], "residency") or isinstance(s.instructions[k], Compute)]
    return _changed(s, i, on=r.choice(before[-30:])) if before else None


def other_stream_waits(s: Schedule, r: random.Random) -> Schedule | None:
    return _changed(s, r.choice(_waits(s)), stream=r.choice(["compute", "out", "in", "store", "host"]))


def dropped(s: Schedule, r: random.Random) -> Schedule | None:
    """The host does not run an op, or a copy is left out."""
    i = r.choice([*by_host(s), *copies(s, Offload), *copies(s, Prefetch)])
    kept = [k for k, x in enumerate(s.instructions) if k != i and not (isinstance(x, Wait) and x.on == i)]
    new = {old: k for k, old in enumerate(kept)}
    return with_instructions(s, [s.instructions[k] for k in kept], new.__getitem__)


def repeated(s: Schedule, r: random.Random) -> Schedule | None:
    """The host runs an op twice."""
    i = r.choice(by_host(s))
    k, xs = min(len(s.instructions), i + r.choice(FAR)), s.instructions
    return with_instructions(s, [*xs[:k], xs[i], *xs[k:]], lambda on: on + (on >= k))


def early(s: Schedule, r: random.Random) -> Schedule | None:
    """The host runs an op earlier: on a gradient that has not come, or before another has read its result."""
    return _moved(s, r.choice(by_host(s)), -r.choice(FAR))


def late(s: Schedule, r: random.Random) -> Schedule | None:
    """The host runs an op later: behind the weight's copy to the device."""
    return _moved(s, r.choice(by_host(s)), r.choice(FAR))


def late_gradient(s: Schedule, r: random.Random) -> Schedule | None:
    """A copy to the host comes later than the op that reads it."""
    return _moved(s, r.choice(copies(s, Offload)), r.choice(FAR))


def other_time_in(s: Schedule, r: random.Random) -> Schedule | None:
    """A copy to the device comes before the host has written, or only after."""
    found = copies(s, Prefetch)
    return _moved(s, r.choice(found), r.choice([-1, 1]) * r.choice([*FAR, 300])) if found else None


def other_residency(s: Schedule, r: random.Random) -> Schedule | None:
    """Another tensor of the same size is copied, as a stale gradient."""
    i = r.choice([*copies(s, Offload), *copies(s, Prefetch)])
    old = s.instructions[i].residency  # type: ignore[union-attr]
    like = [y for b in s.buffers for y in b.residencies if y.tensor.nbytes == old.tensor.nbytes and y is not old]
    return _changed(s, i, residency=r.choice(like)) if like else None


def other_op(s: Schedule, r: random.Random) -> Schedule | None:
    """The host runs another op in its stead."""
    i = r.choice(by_host(s))
    rest = [op for op in s.plan.order if op is not s.instructions[i].op]  # type: ignore[union-attr]
    mine = [op for op in rest if op in s.plan.host_ops]
    return _changed(s, i, op=r.choice(mine if mine and r.random() < 0.7 else rest))


def other_algorithm(s: Schedule, r: random.Random) -> Schedule | None:
    i = r.choice(by_host(s))
    return _changed(s, i, algorithm=replace(s.instructions[i].algorithm, name="other"))  # type: ignore[union-attr]


def other_stream(s: Schedule, r: random.Random) -> Schedule | None:
    """The device, a copy's stream or another of the host's runs the op; or the host runs one of the device's."""
    if r.random() < 0.7:
        return _changed(s, r.choice(by_host(s)), stream=r.choice(["compute", "out", "in", "store", "net"]))
    rest = [i for i, x in enumerate(s.instructions) if isinstance(x, Compute) and x.stream == "compute"]
    return _changed(s, r.choice(rest), stream="host", reads=(), writes=(), workspace=None)


def other_place(s: Schedule, r: random.Random) -> Schedule | None:
    """Two tensors have one place on the host, or overlap, or lie beyond it."""
    out = copy.copy(s)
    out.host_offset = dict(s.host_offset)
    t, u = r.choices(list(s.host_offset), k=2)
    out.host_offset[t] = r.choice([s.host_offset[u], s.host_offset[t] + 256 * r.choice([-64, -1, 1, 64])])
    return out if out.host_offset[t] != s.host_offset[t] else None


def homeless(s: Schedule, r: random.Random) -> Schedule | None:
    """A tensor has no place on the host."""
    out = copy.copy(s)
    t = r.choice([t for i in by_host(s) for t in s.instructions[i].op.tensors])  # type: ignore[union-attr]
    out.host_offset = {u: at for u, at in s.host_offset.items() if u != t}
    return out


CHANGES: tuple[Change[Schedule], ...] = (
    dropped_wait, earlier_wait, other_stream_waits, dropped, repeated, early, late, late_gradient, other_time_in,
    other_residency, other_op, other_algorithm, other_stream, other_place, homeless,
)  # fmt: skip
