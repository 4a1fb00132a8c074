"""Finds the errors of a trip before anything is lowered, and words them by the trip's own points.

The proof (memory/proof/verify.py) decides whether a schedule holds; it knows instructions and no trips. This is for the
author of a policy: it names the trip, the point, and the op that the trip is in the way of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral

from minidnn.memory.plan import Plan, Point, Trip
from minidnn.program import Op, Program, Tensor

POINTS = ("out", "free", "back", "arrive")


def wrong(program: Program, plan: Plan) -> str | None:
    """The first trip that cannot be, and why, in a sentence; None if each can be. `plan` need not be complete."""
    if strange := plan.hosted.difference(program.lasting) | (plan.hosted & program.early):
        reason = "is an input" if strange & program.early else "does not live from step to step"
        return f"{program.name}: {min(t.name for t in strange)} is to live on the host, but {reason}"
    program = program.hosting(plan.hosted)
    order, known = plan.order or program.ops, set(program.tensors)
    uses = _uses(order, plan.beside)
    earlier: dict[Tensor, list[Trip]] = defaultdict(list)
    for trip in plan.trips:
        if not isinstance(trip, Trip):
            return f"{program.name}: among its trips is {trip!r}, which is no Trip"
        if trip.tensor not in known:
            return f"{program.name}: {_named(trip)}: the program has no such tensor"
        if why := _misformed(trip, len(order)):
            return f"{program.name}: {_named(trip)}: {why}"
    for trip in sorted(plan.trips, key=lambda trip: -1 if trip.free is None else trip.free):
        if trip.tensor not in program.early:  # `complete` leaves out the trips of early inputs
            about = _Absence(program, plan, order, trip, uses[trip.tensor], earlier[trip.tensor])
            if why := next(about.reasons(), None):
                return f"{program.name}: {_named(trip)}: {why}"
            earlier[trip.tensor].append(trip)
    return None


def _named(trip: Trip) -> str:
    return f"Trip({trip.tensor.name}, {', '.join(f'{name}={getattr(trip, name)}' for name in POINTS)})"


def _misformed(trip: Trip, end: Point) -> str | None:
    """The error in the order of the trip's points, whatever the ops do."""
    for name in POINTS:
        point = getattr(trip, name)
        if point is not None and (not isinstance(point, Integral) or not 0 <= int(point) <= end):
            return f"{name} is no point: points are whole numbers from 0 to {end}, the end of the step"
    if (trip.back is None) != (trip.arrive is None):
        return "back and arrive go together: both are points, or both are None"
    return None


@dataclass
class _Uses:
    reads: list[Point] = field(default_factory=list)
    writes: list[Point] = field(default_factory=list)


def _uses(order: Sequence[Op], beside: Collection[Op]) -> dict[Tensor, _Uses]:
    """{tensor: the executions on the device that read it, and those that write it}"""
    found: dict[Tensor, _Uses] = defaultdict(_Uses)
    for p, op in enumerate(order):
        if op in beside:
            continue
        for t in op.reads:
            found[t].reads.append(p)
        for t in op.writes:
            found[t].writes.append(p)
    return found


@dataclass
class _Absence:
    """A trip among the uses of its tensor. earlier: the trips of the tensor before it"""

    program: Program
    plan: Plan
    order: Sequence[Op]
    trip: Trip
    uses: _Uses
    earlier: Sequence[Trip]

    def reasons(self) -> Iterator[str]:
        trip, t = self.trip, self.trip.tensor
        free, end = 0 if trip.free is None else trip.free, len(self.order)
        if t in self.plan.hold and trip.free is not None and trip.back is not None:
            yield "it is in hold, too, so it has its bytes for the whole step"
        if t in self.program.carried and trip.back is None and not self._written(free, end) and free < end:
            yield "it must be on the device when the next step begins, so it must come back"
        if trip.free is None and not self.starts_on_host():
            yield "free is None, but it is not on the host when the step begins"
        if trip.free is None and trip.back is None:
            yield "free is None, so it is on the host, and it never comes to the device"
        if trip.out is not None and trip.out > free:
            yield f"it is copied out at {trip.out}, after its bytes are free"
        if trip.back is not None and trip.back < free:
            yield f"it comes back at {trip.back}, before its bytes are free"
        if trip.back is not None and trip.arrive is not None and trip.arrive < trip.back:
            yield f"compute waits for it at {trip.arrive}, before the copy back at {trip.back}"
        yield from self._there(free)
        yield from self._copied(free)
        yield from self._read(free)
        yield from self._in_vain()

    def starts_on_host(self) -> bool:
        return self.trip.tensor in self.program.inputs or self.trip.tensor in self.program.hosted

    def _there(self, free: Point) -> Iterator[str]:
        """Whether the tensor is on the device when the trip takes it away."""
        trip = self.trip
        if self.earlier and trip.free is not None:
            last = self.earlier[-1]
            if last.back is None and not self._written(last.free or 0, free):
                yield f"the trip before it takes the tensor away at {last.free}, for good"
            if last.back is not None and free < last.back:
                yield f"the trip before it brings the tensor back at {last.back} only"
        elif trip.free is not None and not self.starts_on_host() and trip.tensor not in self.program.carried:
            begun = min(self.uses.writes, default=len(self.order))
            first = free if trip.out is None else trip.out
            moves = trip.out is not None or trip.back is not None
            if moves and first <= begun:
                yield f"it does not exist before {self._at(begun)} writes it"

    def _copied(self, free: Point) -> Iterator[str]:
        """Whether the host has the tensor's value when the bytes are free."""
        trip = self.trip
        if trip.free is None or trip.back is None:
            return  # it is there already, or nobody reads it again
        if trip.out is not None:
            if stale := self._written(trip.out, free):
                yield f"{self._at(stale[0])} writes it after the copy out began"
            return
        known = self.starts_on_host() or any(each.out is not None for each in self.earlier)
        if not known:
            yield "out is None, but the host has no copy of it"

    def _read(self, free: Point) -> Iterator[str]:
        """Whether an op reads the tensor while it is away."""
        arrive = len(self.order) if self.trip.arrive is None else self.trip.arrive
        for p in self.uses.reads:
            if free <= p < arrive and not self._written(free, p):
                yield f"{self._at(p)} reads it" + (" before it is back" if self.trip.back is not None else " later")

    def _in_vain(self) -> Iterator[str]:
        """Whether a hosted tensor comes back only to be overwritten: its bytes would be free before they are taken."""
        back, uses = self.trip.back, (*self.uses.reads, *self.uses.writes)
        if back is None or self.trip.tensor not in self.program.hosted:
            return
        first = min((p for p in uses if p >= back), default=None)
        if first is not None and first not in self.uses.reads:
            yield f"it comes back at {back}, and {self._at(first)} overwrites it before anything reads it"

    def _written(self, lo: Point, hi: Point) -> list[Point]:
        """The executions of [lo, hi) that write the tensor."""
        return [p for p in self.uses.writes if lo <= p < hi]

    def _at(self, p: Point) -> str:
        return f"{self.order[p].name} (point {p})" if p < len(self.order) else "the end of the step"
