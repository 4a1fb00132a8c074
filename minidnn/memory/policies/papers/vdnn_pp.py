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

Two more mechanisms of vDNN++ are options of a run, under any policy: pinned memory on demand, with or without packing
(memory/execution/pinning.py), and the heuristics by which its pool places buffers (memory/packing/pool.py).

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
from minidnn.memory.plan import OffloadInterval, Plan, Point
from minidnn.memory.policies.papers.vdnn import Layer, convolution, every, feature_extraction, offloading
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.policies.shared.probe import aligned_curve, listing
from minidnn.memory.schedule import Listing, aligned
from minidnn.program import Program

ATTEMPTS = 8  # placements tried: each has less room by the bytes that the last one had too many


def vdnn_pp(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """As vdnn_all, waiting only where memory is needed."""
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
    program: Program, costs: Costs, budget: int, algorithms: Algorithms, accepts: Callable[[Layer], bool]
) -> Plan:
    vdnn = offloading(program, choose(program, costs, algorithms), accepts)
    early = replace(vdnn, offloads=_awaited_at_use(program, vdnn.offloads))
    absences, curve = _absences(listing(program, costs, early))
    room = budget
    for _ in range(ATTEMPTS if curve.max(initial=0) <= budget else 0):
        late = replace(early, offloads=_freed_late(absences, curve, room))
        placed = place(listing(program, costs, late), by=costs.placement)
        over = placed.arena - budget
        if over <= 0:
            return late
        room = min(room, placed.live_peak) - over
    return early


def _awaited_at_use(program: Program, offloads: Sequence[OffloadInterval]) -> tuple[OffloadInterval, ...]:
    """vDNN's offload intervals. Compute waits for each copy back at the first use after it; inputs are not copied
    out."""
    inputs = set(program.inputs)
    first: dict[OffloadInterval, Point] = {}
    of = {offload.tensor: offload for offload in offloads}
    for p, op in enumerate(program.ops):
        for t in op.reads:
            offload = of.get(t)
            if offload is not None and offload.prefetch_at is not None and p >= offload.prefetch_at:
                first.setdefault(offload, p)
    return tuple(
        replace(offload, offload_at=None if offload.tensor in inputs else offload.offload_at, needed_at=first[offload])
        for offload in offloads
    )


@dataclass(frozen=True)
class _Absence:
    """An offload interval of vDNN's. Over [free, back) the device does not hold its `nbytes` (aligned)."""

    offload: OffloadInterval
    free: Point
    back: Point
    nbytes: int


def _absences(listing: Listing) -> tuple[list[_Absence], np.ndarray]:
    """The plan's absences, oldest first, and the aligned bytes that live at each execution."""
    result = []
    for b in listing.buffers:
        for s in b.residencies:
            offload = s.leaves
            if offload is not None and offload.free_at is not None and offload.prefetch_at is not None:
                result.append(_Absence(offload, offload.free_at, offload.prefetch_at, aligned(b.nbytes)))
    # Inputs give up their bytes first: they have no copy out to wait for.
    result.sort(key=lambda a: (a.free, a.offload.offload_at is not None, a.offload.offload_at))
    return result, aligned_curve(listing)


def _freed_late(absences: Sequence[_Absence], curve: np.ndarray, room: int) -> tuple[OffloadInterval, ...]:
    """The offload intervals that are needed to stay within `room` bytes. Each frees its bytes as late as possible.

    `curve`: bytes live at each execution if all offload intervals free as early as vDNN's.
    """
    offloads: list[OffloadInterval] = []
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
            offloads.append(replace(oldest.offload, free_at=p))
    return tuple(offloads)
