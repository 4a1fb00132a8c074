"""Chains of tensors that re-runs need though no op uses them any more, for the bound (rows.py).

An op that runs again to end a gap reads its inputs once more. An input with a later use has a gap of its own, whose
decision counts anyway. One whose last use lies before the end of the gap is behind its uses, and nothing else counts
it. In a plan one of three then holds: it was held from that use on, it was copied back, or its own maker runs again
behind that use, too, and needs its inputs in turn.

If each is held as long as it is needed, one tensor of this chain is live at any point between the last of these uses
and the end of the gap: first an input, then what the run makes of it. So the smallest of them is a lower bound of the
bytes. A tensor may stand in the chains of several gaps, and then counts for each with a part of its bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minidnn.memory.joint.index import Gap, Index, large
from minidnn.memory.plan import Point
from minidnn.program import Tensor

LONGEST = 12  # tensors of a chain; whatever else it needs counts as there


@dataclass(frozen=True, eq=False)
class Chain:
    """What the run that ends a gap needs of tensors behind their uses.

    needs: {the gap's tensor, or one of the chain: those that its maker reads}
    first: the first point behind all uses of the chain within the gap
    held:  bytes that are live from there to the gap's end, if nothing of the chain is copied or runs again
    """

    gap: Gap
    needs: Mapping[Tensor, tuple[Tensor, ...]]
    first: Point
    held: float

    @property
    def tensors(self) -> list[Tensor]:
        """Those behind their uses."""
        return list(dict.fromkeys(t for needed in self.needs.values() for t in needed))


def chains(index: Index, gaps: Iterable[Gap]) -> list[Chain]:
    """The chains of the gaps that a run again may end; a gap whose run needs nothing behind its uses has none."""
    worth = {t for t in large(index) if t not in index.program.host_resident and t not in index.program.outputs}
    found = [(g, needs) for g in gaps if (needs := _needs(index, g, worth))]
    times = Counter(t for t, _ in {(t, g.tensor) for g, needs in found for some in needs.values() for t in some})
    result = []
    for g, needs in found:
        tensors = {t for some in needs.values() for t in some}
        first = 1 + max(g.last, *(index.uses[t][-1] for t in tensors))
        result.append(Chain(g, needs, first, min(g.tensor.nbytes, *(t.nbytes / times[t] for t in tensors))))
    return result


def _needs(index: Index, gap: Gap, worth: set[Tensor]) -> dict[Tensor, tuple[Tensor, ...]]:
    """Chain.needs; empty: all that the run reads is used at the end of the gap, or later."""
    result: dict[Tensor, tuple[Tensor, ...]] = {}
    pending, seen = [gap.tensor], {gap.tensor}
    while pending:
        t = pending.pop()
        reads = dict.fromkeys(index.ops[index.maker[t]].reads)
        if behind := tuple(u for u in reads if u in worth and index.uses[u][-1] < gap.use):
            if len(seen | {*behind}) > LONGEST:
                continue
            result[t] = behind
            pending += [u for u in behind if u in index.maker and u not in seen]
            seen.update(behind)
    return result
