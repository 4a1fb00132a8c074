"""Finds the errors of an offload interval before anything is lowered, and words them by the offload interval's own
points.

The proof (memory/proof/verify.py) decides whether a schedule holds; it knows instructions and no offloads. This is for
the author of a policy: it names the offload interval, the point, and the op that the offload interval is in the way of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral

from minidnn.memory.plan import OffloadInterval, Plan, Point
from minidnn.program import Op, Program, Tensor

POINTS = ("offload_at", "free_at", "prefetch_at", "needed_at")


def wrong(program: Program, plan: Plan) -> str | None:
    """The first offload interval that cannot be, and why, in a sentence; None if each can be. `plan` need not be
    complete."""
    if strange := plan.host_resident.difference(program.lasting) | (plan.host_resident & program.double_buffered):
        reason = "is an input" if strange & program.double_buffered else "does not live from step to step"
        return f"{program.name}: {min(t.name for t in strange)} is to live on the host, but {reason}"
    program = program.with_host_resident(plan.host_resident)
    order, known = plan.order or program.ops, set(program.tensors)
    uses = _uses(order, plan.host_ops)
    earlier: dict[Tensor, list[OffloadInterval]] = defaultdict(list)
    for offload in plan.offloads:
        if not isinstance(offload, OffloadInterval):
            return f"{program.name}: among its offload intervals is {offload!r}, which is no OffloadInterval"
        if offload.tensor not in known:
            return f"{program.name}: {_named(offload)}: the program has no such tensor"
        if why := _misformed(offload, len(order)):
            return f"{program.name}: {_named(offload)}: {why}"
    for offload in sorted(plan.offloads, key=lambda offload: -1 if offload.free_at is None else offload.free_at):
        # `complete` leaves out the offload intervals of double-buffered inputs
        if offload.tensor not in program.double_buffered:
            about = _Absence(program, plan, order, offload, uses[offload.tensor], earlier[offload.tensor])
            if why := next(about.reasons(), None):
                return f"{program.name}: {_named(offload)}: {why}"
            earlier[offload.tensor].append(offload)
    return None


def _named(offload: OffloadInterval) -> str:
    return f"OffloadInterval({offload.tensor.name}, {', '.join(f'{name}={getattr(offload, name)}' for name in POINTS)})"


def _misformed(offload: OffloadInterval, end: Point) -> str | None:
    """The error in the order of the offload interval's points, whatever the ops do."""
    for name in POINTS:
        point = getattr(offload, name)
        if point is not None and (not isinstance(point, Integral) or not 0 <= int(point) <= end):
            return f"{name} is no point: points are whole numbers from 0 to {end}, the end of the step"
    if (offload.prefetch_at is None) != (offload.needed_at is None):
        return "prefetch_at and needed_at go together: both are points, or both are None"
    return None


@dataclass
class _Uses:
    reads: list[Point] = field(default_factory=list)
    writes: list[Point] = field(default_factory=list)


def _uses(order: Sequence[Op], host_ops: Collection[Op]) -> dict[Tensor, _Uses]:
    """{tensor: the executions on the device that read it, and those that write it}"""
    result: dict[Tensor, _Uses] = defaultdict(_Uses)
    for p, op in enumerate(order):
        if op in host_ops:
            continue
        for t in op.reads:
            result[t].reads.append(p)
        for t in op.writes:
            result[t].writes.append(p)
    return result


@dataclass
class _Absence:
    """An offload interval among the uses of its tensor. earlier: the offload intervals of the tensor before it"""

    program: Program
    plan: Plan
    order: Sequence[Op]
    offload: OffloadInterval
    uses: _Uses
    earlier: Sequence[OffloadInterval]

    def reasons(self) -> Iterator[str]:
        offload, t = self.offload, self.offload.tensor
        free, end = 0 if offload.free_at is None else offload.free_at, len(self.order)
        if t in self.plan.hold and offload.free_at is not None and offload.prefetch_at is not None:
            yield "it is in hold, too, so it has its bytes for the whole step"
        if t in self.program.persistent and offload.prefetch_at is None and not self._written(free, end) and free < end:
            yield "it must be on the device when the next step begins, so it must come back"
        if offload.free_at is None and not self.starts_on_host():
            yield "free_at is None, but it is not on the host when the step begins"
        if offload.free_at is None and offload.prefetch_at is None:
            yield "free_at is None, so it is on the host, and it never comes to the device"
        if offload.offload_at is not None and offload.offload_at > free:
            yield f"it is copied out at {offload.offload_at}, after its bytes are free"
        if offload.prefetch_at is not None and offload.prefetch_at < free:
            yield f"it comes back at {offload.prefetch_at}, before its bytes are free"
        if (
            offload.prefetch_at is not None
            and offload.needed_at is not None
            and offload.needed_at < offload.prefetch_at
        ):
            yield f"compute waits for it at {offload.needed_at}, before the copy back at {offload.prefetch_at}"
        yield from self._there(free)
        yield from self._copied(free)
        yield from self._read(free)
        yield from self._in_vain()

    def starts_on_host(self) -> bool:
        return self.offload.tensor in self.program.inputs or self.offload.tensor in self.program.host_resident

    def _there(self, free: Point) -> Iterator[str]:
        """Whether the tensor is on the device when the offload interval takes it away."""
        offload = self.offload
        if self.earlier and offload.free_at is not None:
            last = self.earlier[-1]
            if last.prefetch_at is None and not self._written(last.free_at or 0, free):
                yield f"the offload interval before it takes the tensor away at {last.free_at}, for good"
            if last.prefetch_at is not None and free < last.prefetch_at:
                yield f"the offload interval before it brings the tensor back at {last.prefetch_at} only"
        elif (
            offload.free_at is not None and not self.starts_on_host() and offload.tensor not in self.program.persistent
        ):
            begun = min(self.uses.writes, default=len(self.order))
            first = free if offload.offload_at is None else offload.offload_at
            moves = offload.offload_at is not None or offload.prefetch_at is not None
            if moves and first <= begun:
                yield f"it does not exist before {self._at(begun)} writes it"

    def _copied(self, free: Point) -> Iterator[str]:
        """Whether the host has the tensor's value when the bytes are free."""
        offload = self.offload
        if offload.free_at is None or offload.prefetch_at is None:
            return  # it is there already, or nobody reads it again
        if offload.offload_at is not None:
            if stale := self._written(offload.offload_at, free):
                yield f"{self._at(stale[0])} writes it after the copy out began"
            return
        known = self.starts_on_host() or any(each.offload_at is not None for each in self.earlier)
        if not known:
            yield "offload_at is None, but the host has no copy of it"

    def _read(self, free: Point) -> Iterator[str]:
        """Whether an op reads the tensor while it is away."""
        arrive = len(self.order) if self.offload.needed_at is None else self.offload.needed_at
        for p in self.uses.reads:
            if free <= p < arrive and not self._written(free, p):
                yield f"{self._at(p)} reads it" + (
                    " before it is back" if self.offload.prefetch_at is not None else " later"
                )

    def _in_vain(self) -> Iterator[str]:
        """Whether a host-resident tensor comes back only to be overwritten: its bytes would be free before they are
        taken."""
        back, uses = self.offload.prefetch_at, (*self.uses.reads, *self.uses.writes)
        if back is None or self.offload.tensor not in self.program.host_resident:
            return
        first = min((p for p in uses if p >= back), default=None)
        if first is not None and first not in self.uses.reads:
            yield f"it comes back at {back}, and {self._at(first)} overwrites it before anything reads it"

    def _written(self, lo: Point, hi: Point) -> list[Point]:
        """The executions of [lo, hi) that write the tensor."""
        return [p for p in self.uses.writes if lo <= p < hi]

    def _at(self, p: Point) -> str:
        return f"{self.order[p].name} (point {p})" if p < len(self.order) else "the end of the step"
