"""AccUDNN-style swapping, after Guo et al. ("AccUDNN: A GPU Memory Efficient Accelerator for Training Ultra-Deep Neural
Networks", ICCD 2019, arXiv 1901.06773).

This is a reconstruction from two sentences that are known of the original. Its memory optimizer swaps "appropriate
data", guided by a performance model. It does so first to make a network trainable at all, then to lose as little speed
as possible. Its tuner then looks for the most efficient minibatch (jobs/tune.py). We did not find how the optimizer
chooses, and there is no public code. This policy follows from those sentences:

  1. memory/policies/shared/swap_model.py is the performance model: seconds of each op, link bandwidths, copies that
     serialise per direction.
  2. If the network fits, nothing moves.
  3. Otherwise the smallest set of tensors moves whose copies are all hidden. Tensors with the longest idle windows join
     first, as many as the limit needs. Tensors that turn out not to be needed are left out again. Each tensor has a
     window of its own length.
  4. If no such set keeps the limit, tensors whose copies are partly exposed join, those with the least exposed seconds
     per byte first. Among the sets that keep the limit, the one with the quickest predicted step is taken.
  5. vDNN's sets are starts like others. If nothing better is found, vDNN's plans are taken as they are. If vdnn_conv
     keeps the budget, no more bytes move than under vdnn_conv.

Live bytes decide the search, but the placed arena counts in the end. If it exceeds the budget, the search is repeated
with that much less. Windows are also widened until lives nest well enough to be placed without gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, Trip
from minidnn.memory.policies.papers.vdnn import vdnn_all, vdnn_conv
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.policies.shared.probe import arena
from minidnn.memory.policies.shared.swap_model import Candidate, Model, Prediction
from minidnn.memory.schedule import aligned
from minidnn.program import Program

BUFFERS = 120_000  # buffers placed at most, in all plans tried together: this bounds the time of a search
MOST = 24  # plans placed at most
SLACKS = (16, 8, 4, 2, 1, 0)  # most ops that a tensor stays beyond its last use, or comes back before its first
FINE = 200  # a set's size is found to within 1/200 of all candidates
TRIED = 10_000  # tensors in all sets that `_prefixes` tries, about
STEPS = 6  # sizes of sets tried beyond the smallest that keeps the limit
SAME = 1 + 1e-6  # times that differ by less count as equal, and then fewer bytes decide


@dataclass(frozen=True)
class Found:
    """A set of trips, its predicted step, and the bytes that it copies."""

    trips: tuple[Trip, ...]
    prediction: Prediction
    moved: int  # bytes copied out and back


def accudnn(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Tensors whose copies are hidden wait on the host.

    If not even the leanest plan keeps it, the leanest plan is returned, and the refusal names it.
    """
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
    """Whether the set keeps the limit once it is placed."""
    return found.prediction.peak <= limit and _over(program, model, found.trips, limit) <= 0


def _over(program: Program, model: Model, trips: Sequence[Trip], limit: int) -> int:
    """Bytes by which the arena exceeds the limit; 0 or less if it keeps the limit."""
    return arena(program, model.costs, replace(model.plan, trips=tuple(trips)), limit) - limit


def _found(model: Model, trips: Iterable[Trip]) -> Found:
    trips = tuple(trips)
    moved = sum(t.tensor.nbytes * ((t.out is not None) + (t.back is not None)) for t in trips)
    return Found(trips, model.predict(trips), moved)


def _worse(one: Found, other: Found) -> bool:
    """Whether `one` copies more bytes than `other`, or is slower."""
    return one.moved > other.moved or _slower(one, other)


def _slower(one: Found, other: Found) -> bool:
    return one.prediction.seconds > other.prediction.seconds * SAME


def _search(program: Program, model: Model, limit: int, least: int, vdnn: Sequence[Sequence[Trip]]) -> Found | None:
    """The quickest set found whose placed arena keeps the limit, or None. `least`: the lowest possible live peak."""
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
    """The quickest set that keeps the limit of live bytes; of equally quick ones the one that copies the fewest bytes.

    If vdnn_conv keeps the limit, the set copies no more bytes than vdnn_conv, if any such set is found.
    """
    starts: list[Found] = []
    hidden = model.predict(()).seconds * SAME
    for order in _orders(model, limit):
        starts += _prefixes(model, order, limit, hidden)
        if any(f.prediction.seconds <= hidden for f in starts):
            break  # no set is quicker
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
    """Two orders in which candidates join.

    The first begins with the longest idle windows. The second begins with the least exposed seconds per byte if all
    candidates join, so candidates whose copies stay hidden come first.
    """
    by_window = sorted(model.candidates, key=model.idle, reverse=True)
    trips = model.windows(by_window, limit)
    if trips is None:
        return [by_window]
    exposed = model.predict(trips).exposed
    rank = {c: i for i, c in enumerate(by_window)}
    by_exposure = sorted(by_window, key=lambda c: (exposed.get(c.tensor, 0.0) / c.nbytes, rank[c]))
    return [by_window, by_exposure]


def _prefixes(model: Model, order: Sequence[Candidate], limit: int, hidden: float) -> list[Found]:
    """Sets of the first candidates of `order`: the smallest set that keeps the limit, and some larger ones.

    In a larger set tensors leave sooner, so ops wait less, until the copies queue up. If a set takes at most `hidden`
    seconds, all its copies are hidden; then the smallest such set is found.
    """
    near = len(order) // FINE
    low, high = 0, len(order)  # `high` keeps the limit if any size does: more tensors free more bytes
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
    while high - low > near:  # the smallest hidden set lies between the last two sizes
        middle = (low + high) // 2
        tried = _tried(model, order[:middle], limit)
        found += tried
        if any(f.prediction.seconds <= hidden for f in tried):
            high = middle
        else:
            low = middle + 1
    return found


def _tried(model: Model, chosen: Sequence[Candidate], limit: int) -> list[Found]:
    """The set of these candidates without those that it does not need; empty if it does not keep the limit.

    Its windows are found anew if that is better.
    """
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
    """The trips without those that live bytes under the limit do not need. The largest tensors are tried first."""
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
