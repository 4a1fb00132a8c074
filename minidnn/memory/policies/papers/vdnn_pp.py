"""vDNN++ (Shriram, Garg, Kulkarni: "Dynamic Memory Management for GPU-Based Training of Deep Neural Networks", IPDPS
2019). It follows the abstract and the authors' code; we could not get the paper's own text and tables.

vDNN's first bottleneck is that each layer waits at its end for its copy. Here a copy out starts where vDNN starts it.
But the map gives up its bytes only where another tensor needs them, and compute waits for the copy there and nowhere
else. A copy back starts by vDNN's window (`findPrefetchLayer`), and compute waits for it at the point of use. The batch
is not copied out, since the host still has it.

  vdnn_pp:      the maps that vdnn_all offloads
  vdnn_pp_conv: the maps that vdnn_conv offloads
  vdnn_pp_alt:  the input maps of every other convolution, the first one's among them

The authors' allocation sleeps until a helper thread frees enough, and nothing keeps it from sleeping for ever. An
iteration is deterministic, so here the points of waiting are computed in advance. The oldest copies, which end first,
give up their bytes at the last point at which all still fits. The resulting schedule is proved before it runs. A map
whose bytes no other tensor needs stays and is not copied (the authors' code copies it all the same).

Under a tight budget this ends at vDNN's own points, which fit wherever vDNN does. No wait comes earlier than vDNN's,
and there are no other waits. So compute never stalls for longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from minidnn.costs import Costs
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import Plan, Point, Trip
from minidnn.memory.policies.papers.vdnn import Layer, convolution, every, feature_extraction, offloading
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.policies.shared.probe import aligned_curve, listing
from minidnn.memory.schedule import Listing, aligned
from minidnn.program import Program

ATTEMPTS = 8  # placements tried: each has less room by the bytes that the last one had too many


def vdnn_pp(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """As vdnn_all, with waits only where bytes are needed."""
    return _asynchronous(program, costs, budget, algorithms, every)


def vdnn_pp_conv(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """As vdnn_pp, for the input maps of convolutions."""
    return _asynchronous(program, costs, budget, algorithms, convolution)


def vdnn_pp_alt(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """As vdnn_pp, for every other convolution's input map."""
    convolutions = [layer.name for layer in feature_extraction(program) if layer.convolution]
    alternate = set(convolutions[::2])
    return _asynchronous(program, costs, budget, algorithms, lambda layer: layer.name in alternate)


def _asynchronous(
    program: Program, costs: Costs, budget: int, algorithms: Algorithms, offloads: Callable[[Layer], bool]
) -> Plan:
    vdnn = offloading(program, choose(program, costs, algorithms), offloads)
    early = replace(vdnn, trips=_awaited_at_use(program, vdnn.trips))
    absences, curve = _absences(listing(program, costs, early))
    room = budget
    for _ in range(ATTEMPTS if curve.max(initial=0) <= budget else 0):
        late = replace(early, trips=_freed_late(absences, curve, room))
        placed = place(listing(program, costs, late))
        over = placed.arena - budget
        if over <= 0:
            return late
        room = min(room, placed.live_peak) - over
    return early


def _awaited_at_use(program: Program, trips: Sequence[Trip]) -> tuple[Trip, ...]:
    """vDNN's trips. Compute waits for each copy back at the first use after it; inputs are not copied out."""
    inputs = set(program.inputs)
    first: dict[Trip, Point] = {}
    of = {trip.tensor: trip for trip in trips}
    for p, op in enumerate(program.ops):
        for t in op.reads:
            trip = of.get(t)
            if trip is not None and trip.back is not None and p >= trip.back:
                first.setdefault(trip, p)
    return tuple(replace(trip, out=None if trip.tensor in inputs else trip.out, arrive=first[trip]) for trip in trips)


@dataclass(frozen=True)
class _Absence:
    """A trip of vDNN's. Over [free, back) the device does not hold its `nbytes` (aligned)."""

    trip: Trip
    free: Point
    back: Point
    nbytes: int


def _absences(taken: Listing) -> tuple[list[_Absence], np.ndarray]:
    """The plan's absences, oldest first, and the aligned bytes that live at each execution."""
    found = []
    for b in taken.buffers:
        for s in b.stays:
            trip = s.leaves
            if trip is not None and trip.free is not None and trip.back is not None:
                found.append(_Absence(trip, trip.free, trip.back, aligned(b.nbytes)))
    # Inputs give up their bytes first: they have no copy out to wait for.
    found.sort(key=lambda a: (a.free, a.trip.out is not None, a.trip.out))
    return found, aligned_curve(taken)


def _freed_late(absences: Sequence[_Absence], curve: np.ndarray, room: int) -> tuple[Trip, ...]:
    """The trips that are needed to stay within `room` bytes. Each frees its bytes as late as possible.

    `curve`: bytes live at each execution if all trips free as early as vDNN's.
    """
    trips: list[Trip] = []
    held: deque[_Absence] = deque()  # their bytes are not needed yet
    more = 0  # bytes that they hold
    coming = deque(absences)
    for p in range(len(curve)):
        while coming and coming[0].free <= p:
            held.append(coming.popleft())
            more += held[-1].nbytes
        if any(a.back <= p for a in held):
            more -= sum(a.nbytes for a in held if a.back <= p)
            held = deque(a for a in held if a.back > p)
        while held and curve[p] + more > room:
            oldest = held.popleft()
            more -= oldest.nbytes
            trips.append(replace(oldest.trip, free=p))
    return tuple(trips)
