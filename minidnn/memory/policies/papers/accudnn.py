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
from minidnn.memory.plan import OffloadInterval, Plan
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
class Window:
    """A set of offload intervals, its predicted step, and the bytes that it copies."""

    offloads: tuple[OffloadInterval, ...]
    prediction: Prediction
    moved: int  # bytes copied out and back


def accudnn(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Tensors whose copies are hidden are offloaded.

    If not even the leanest plan keeps it, the leanest plan is returned, and the refusal names it.
    """
    model = Model(program, costs, choose(program, costs, algorithms))
    if model.peak <= budget and _over(program, model, (), budget) <= 0:
        return model.plan
    leanest = tuple(model.narrowest())
    least = int(model.curve(leanest).max(initial=0))
    if least > budget:
        return replace(model.plan, offloads=leanest)
    offloads = [policy(program, costs, budget, algorithms).offloads for policy in (vdnn_conv, vdnn_all)]
    result = _search(program, model, budget, least, offloads)
    conv, every = (_window(model, of) for of in offloads)
    if result is None or _worse(result, conv) or _slower(result, every):
        if _fits(program, model, conv, budget):
            result = conv if result is None or _worse(result, conv) else result
        elif (result is None or _slower(result, every)) and _fits(program, model, every, budget):
            result = every
    return replace(model.plan, offloads=leanest if result is None else result.offloads)


def _fits(program: Program, model: Model, window: Window, limit: int) -> bool:
    """Whether the set keeps the limit once it is placed."""
    return window.prediction.peak <= limit and _over(program, model, window.offloads, limit) <= 0


def _over(program: Program, model: Model, offloads: Sequence[OffloadInterval], limit: int) -> int:
    """Bytes by which the arena exceeds the limit; 0 or less if it keeps the limit."""
    return arena(program, model.costs, replace(model.plan, offloads=tuple(offloads)), limit) - limit


def _window(model: Model, offloads: Iterable[OffloadInterval]) -> Window:
    offloads = tuple(offloads)
    moved = sum(t.tensor.nbytes * ((t.offload_at is not None) + (t.prefetch_at is not None)) for t in offloads)
    return Window(offloads, model.predict(offloads), moved)


def _worse(one: Window, other: Window) -> bool:
    """Whether `one` copies more bytes than `other`, or is slower."""
    return one.moved > other.moved or _slower(one, other)


def _slower(one: Window, other: Window) -> bool:
    return one.prediction.seconds > other.prediction.seconds * SAME


def _search(
    program: Program, model: Model, limit: int, least: int, vdnn: Sequence[Sequence[OffloadInterval]]
) -> Window | None:
    """The quickest set found whose placed arena keeps the limit, or None. `least`: the lowest possible live peak."""
    attempts = max(2, min(BUFFERS // len(program.tensors), MOST))
    fitting: list[Window] = []
    failed: list[Window] = []
    room = limit
    while len(failed) < max(2, attempts // 4):
        result = _best(model, room, vdnn)
        if result is None:
            break
        over = _over(program, model, result.offloads, limit)
        if over <= 0:
            fitting.append(result)
            break
        failed.append(result)
        if room == least:
            break
        room = max(least, min(room, result.prediction.peak) - over)
    attempts -= len(failed) + len(fitting)
    for result in failed:
        for slack in SLACKS:
            shorter = _window(model, model.tightened(result.offloads, slack))
            if attempts <= 0 or any(_slower(shorter, f) for f in fitting):
                break
            attempts -= 1
            if _over(program, model, shorter.offloads, limit) <= 0:
                fitting.append(shorter)
                break
    return min(fitting, key=lambda f: f.prediction.seconds, default=None)


def _best(model: Model, limit: int, vdnn: Sequence[Sequence[OffloadInterval]]) -> Window | None:
    """The quickest set that keeps the limit of live bytes; of equally quick ones the one that copies the fewest bytes.

    If vdnn_conv keeps the limit, the set copies no more bytes than vdnn_conv, if any such set is found.
    """
    starts: list[Window] = []
    hidden = model.predict(()).seconds * SAME
    for order in _orders(model, limit):
        starts += _prefixes(model, order, limit, hidden)
        if any(f.prediction.seconds <= hidden for f in starts):
            break  # no set is quicker
    for offloads in vdnn:
        tensors = {t.tensor for t in offloads}
        starts += _pruned_to_need(model, [c for c in model.candidates if c.tensor in tensors], limit)
    allowed = _window(model, vdnn[0])
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
    offloads = model.windows(by_window, limit)
    if offloads is None:
        return [by_window]
    exposed = model.predict(offloads).exposed
    rank = {c: i for i, c in enumerate(by_window)}
    by_exposure = sorted(by_window, key=lambda c: (exposed.get(c.tensor, 0.0) / c.nbytes, rank[c]))
    return [by_window, by_exposure]


def _prefixes(model: Model, order: Sequence[Candidate], limit: int, hidden: float) -> list[Window]:
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
    result: list[Window] = []
    least, more = high, len(order) - high
    steps = max(2, min(STEPS, TRIED // max(len(order), 1)))
    for n in sorted({least + round(more * (i / steps) ** 2) for i in range(steps + 1)}):
        tried = _pruned_to_need(model, order[:n], limit)
        result += tried
        high = n
        if any(f.prediction.seconds <= hidden for f in tried):
            break
        low = n + 1
    else:
        return result
    while high - low > near:  # the smallest hidden set lies between the last two sizes
        middle = (low + high) // 2
        tried = _pruned_to_need(model, order[:middle], limit)
        result += tried
        if any(f.prediction.seconds <= hidden for f in tried):
            high = middle
        else:
            low = middle + 1
    return result


def _pruned_to_need(model: Model, candidates: Sequence[Candidate], limit: int) -> list[Window]:
    """The set of these candidates without those that it does not need; empty if it does not keep the limit.

    Its windows are found anew if that is better.
    """
    offloads = model.windows(candidates, limit)
    if offloads is None:
        return []
    result = _window(model, _pruned(model, offloads, limit))
    kept = {t.tensor for t in result.offloads}
    if len(kept) == len(offloads):
        return [result]
    again = model.windows([c for c in candidates if c.tensor in kept], limit)
    if again is not None:
        other = _window(model, again)
        if other.prediction.seconds <= result.prediction.seconds and other.moved <= result.moved:
            result = other
    return [result] if result.prediction.peak <= limit else []


def _pruned(model: Model, offloads: Sequence[OffloadInterval], limit: int) -> list[OffloadInterval]:
    """The offload intervals without those that live bytes under the limit do not need. The largest tensors are tried
    first."""
    curve = model.curve(offloads)
    kept: list[OffloadInterval] = []
    for offload in sorted(offloads, key=lambda t: -t.tensor.nbytes):
        away = curve[offload.free_at : offload.prefetch_at]
        nbytes = aligned(offload.tensor.nbytes)
        if int(away.max(initial=0)) + nbytes <= limit:
            away += nbytes  # a view: the curve itself rises
        else:
            kept.append(offload)
    return kept
