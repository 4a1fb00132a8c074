"""AccUDNN-style swapping, after Guo et al. ("AccUDNN: A GPU Memory Efficient Accelerator for Training Ultra-Deep Neural
Networks", ICCD 2019, arXiv 1901.06773).

This is a reconstruction. Known of the original are two sentences' worth: its memory optimizer swaps "appropriate data",
guided by a performance model, first so that a network is trainable at all, then so that it loses as little speed as
possible; its tuner then looks for the most efficient minibatch (minidnn/study/tune.py). How it chooses was not to be
found, and there is no public code. What follows from those sentences here:

  1. accudnn_model.py is the performance model: per-op seconds, link bandwidths, copies that serialise per direction.
  2. Where the network fits, nothing moves.
  3. Else the smallest set of tensors moves whose copies are all hidden: the longest idle windows first, as many as the
     limit needs, less those that turn out not to be needed. Each has a window of its own length.
  4. Where no such set keeps the limit, tensors whose copies are partly exposed join, least exposed seconds per byte
     first, and of the sets that keep it the one is taken that is predicted to be quickest.
  5. vDNN's sets are starts like others, and where all of this comes to nothing better, its plans as they are: where
     vdnn_conv keeps the budget, no more bytes move than there.

Live bytes decide the search. What counts in the end is the placed arena: where it is above the budget, the search is
repeated with that much less, and windows are widened until lives nest well enough to be placed without gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, Trip
from minidnn.memory.policies.accudnn_model import Candidate, Model, Prediction
from minidnn.memory.policies.algorithms import Algorithms, choose
from minidnn.memory.policies.probe import arena
from minidnn.memory.policies.vdnn import vdnn_all, vdnn_conv
from minidnn.memory.schedule import aligned
from minidnn.program import Program

BUFFERS = 120_000  # placed at most, in all plans tried together: it is what bounds the time of a search
MOST = 24  # plans placed at most
SLACKS = (16, 8, 4, 2, 1, 0)  # ops that a tensor stays beyond its last use, or comes back before its first, at most
FINE = 200  # a set's size is found to within this part of all candidates
TRIED = 10_000  # tensors of all these sets together, about
STEPS = 6  # sizes of sets that are tried beyond the smallest one that keeps the limit
SAME = 1 + 1e-6  # times that differ by less are taken as equal, and then fewer bytes decide


@dataclass(frozen=True)
class Found:
    """A set of trips that keeps a limit of live bytes, and what is predicted of it."""

    trips: tuple[Trip, ...]
    prediction: Prediction
    moved: int  # bytes copied, both ways


def accudnn(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Where not even the leanest plan keeps the budget, that plan is returned: it is what a refusal names."""
    model = Model(program, costs, choose(program, costs, algorithms))
    if model.peak <= budget and _over(program, model, (), budget) <= 0:
        return model.plan
    leanest = tuple(model.narrowest())
    least = int(model.curve(leanest).max(initial=0))
    if least > budget:
        return replace(model.plan, trips=leanest)
    trips = [policy(program, costs, budget, algorithms).trips for policy in (vdnn_conv, vdnn_all)]
    found = _search(program, model, budget, least, trips)
    conv, every = (_found(model, of) for of in trips)
    if found is None or _worse(found, conv) or _slower(found, every):
        if _fits(program, model, conv, budget):
            found = conv if found is None or _worse(found, conv) else found
        elif (found is None or _slower(found, every)) and _fits(program, model, every, budget):
            found = every
    return replace(model.plan, trips=leanest if found is None else found.trips)


def _fits(program: Program, model: Model, found: Found, limit: int) -> bool:
    return found.prediction.peak <= limit and _over(program, model, found.trips, limit) <= 0


def _over(program: Program, model: Model, trips: Sequence[Trip], limit: int) -> int:
    """By how many bytes the arena exceeds the limit; 0 or less: it does not."""
    return arena(program, model.costs, replace(model.plan, trips=tuple(trips)), limit) - limit


def _found(model: Model, trips: Iterable[Trip]) -> Found:
    trips = tuple(trips)
    moved = sum(t.tensor.nbytes * ((t.out is not None) + (t.back is not None)) for t in trips)
    return Found(trips, model.predict(trips), moved)


def _worse(one: Found, other: Found) -> bool:
    return one.moved > other.moved or _slower(one, other)


def _slower(one: Found, other: Found) -> bool:
    return one.prediction.seconds > other.prediction.seconds * SAME


def _search(program: Program, model: Model, limit: int, least: int, vdnn: Sequence[Sequence[Trip]]) -> Found | None:
    """The quickest that can be placed within the limit; None: nothing tried can. `least`: the lowest live peak."""
    attempts = max(2, min(BUFFERS // len(program.tensors), MOST))
    fitting: list[Found] = []
    failed: list[Found] = []
    room = limit
    while len(failed) < max(2, attempts // 4):
        found = _best(model, room, vdnn)
        if found is None:
            break
        over = _over(program, model, found.trips, limit)
        if over <= 0:
            fitting.append(found)
            break
        failed.append(found)
        if room == least:
            break
        room = max(least, min(room, found.prediction.peak) - over)
    attempts -= len(failed) + len(fitting)
    for found in failed:
        for slack in SLACKS:
            shorter = _found(model, model.tightened(found.trips, slack))
            if attempts <= 0 or any(_slower(shorter, f) for f in fitting):
                break
            attempts -= 1
            if _over(program, model, shorter.trips, limit) <= 0:
                fitting.append(shorter)
                break
    return min(fitting, key=lambda f: f.prediction.seconds, default=None)


def _best(model: Model, limit: int, vdnn: Sequence[Sequence[Trip]]) -> Found | None:
    """The quickest set that keeps the limit of live bytes, the smallest among equals; no larger than vdnn_conv's where
    that keeps it."""
    starts: list[Found] = []
    hidden = model.predict(()).seconds * SAME
    for order in _orders(model, limit):
        starts += _prefixes(model, order, limit, hidden)
        if any(f.prediction.seconds <= hidden for f in starts):
            break  # nothing is quicker
    for trips in vdnn:
        tensors = {t.tensor for t in trips}
        starts += _tried(model, [c for c in model.candidates if c.tensor in tensors], limit)
    allowed = _found(model, vdnn[0])
    if allowed.prediction.peak <= limit:
        starts = [f for f in starts if f.moved <= allowed.moved] or starts
    if not starts:
        return None
    quickest = min(f.prediction.seconds for f in starts)
    return min((f for f in starts if f.prediction.seconds <= quickest * SAME), key=lambda f: f.moved)


def _orders(model: Model, limit: int) -> list[list[Candidate]]:
    """In which order candidates join: the longest idle windows first; and those first whose copies stay hidden even if
    all join, then by exposed seconds per byte."""
    by_window = sorted(model.candidates, key=model.idle, reverse=True)
    trips = model.windows(by_window, limit)
    if trips is None:
        return [by_window]
    exposed = model.predict(trips).exposed
    rank = {c: i for i, c in enumerate(by_window)}
    by_exposure = sorted(by_window, key=lambda c: (exposed.get(c.tensor, 0.0) / c.nbytes, rank[c]))
    return [by_window, by_exposure]


def _prefixes(model: Model, order: Sequence[Candidate], limit: int, hidden: float) -> list[Found]:
    """The smallest start of `order` that keeps the limit, and some longer ones: more tensors leave sooner, so that ops
    wait less, until the copies queue up. Where copies are all `hidden`, a step's seconds then, the smallest such."""
    near = len(order) // FINE
    low, high = 0, len(order)  # `high` keeps the limit if any does: more tensors can only be away at more points
    while high - low > near:
        middle = (low + high) // 2
        if model.windows(order[:middle], limit) is None:
            low = middle + 1
        else:
            high = middle
    found: list[Found] = []
    least, more = high, len(order) - high
    steps = max(2, min(STEPS, TRIED // max(len(order), 1)))
    for n in sorted({least + round(more * (i / steps) ** 2) for i in range(steps + 1)}):
        tried = _tried(model, order[:n], limit)
        found += tried
        high = n
        if any(f.prediction.seconds <= hidden for f in tried):
            break
        low = n + 1
    else:
        return found
    while high - low > near:  # the smallest that is hidden lies between the last two
        middle = (low + high) // 2
        tried = _tried(model, order[:middle], limit)
        found += tried
        if any(f.prediction.seconds <= hidden for f in tried):
            high = middle
        else:
            low = middle + 1
    return found


def _tried(model: Model, chosen: Sequence[Candidate], limit: int) -> list[Found]:
    """This set, less those it can do without; with windows that are found anew if that is better."""
    trips = model.windows(chosen, limit)
    if trips is None:
        return []
    found = _found(model, _pruned(model, trips, limit))
    kept = {t.tensor for t in found.trips}
    if len(kept) == len(trips):
        return [found]
    again = model.windows([c for c in chosen if c.tensor in kept], limit)
    if again is not None:
        other = _found(model, again)
        if other.prediction.seconds <= found.prediction.seconds and other.moved <= found.moved:
            found = other
    return [found] if found.prediction.peak <= limit else []


def _pruned(model: Model, trips: Sequence[Trip], limit: int) -> list[Trip]:
    """These trips without those that live bytes under the limit do not need, the largest looked at first."""
    curve = model.curve(trips)
    kept: list[Trip] = []
    for trip in sorted(trips, key=lambda t: -t.tensor.nbytes):
        away = curve[trip.free : trip.back]
        nbytes = aligned(trip.tensor.nbytes)
        if int(away.max(initial=0)) + nbytes <= limit:
            away += nbytes  # a view: the curve itself rises
        else:
            kept.append(trip)
    return kept
