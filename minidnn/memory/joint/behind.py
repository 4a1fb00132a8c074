"""Tensors that runs again need behind their uses (chains.py): their variables and rows in the bound's program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from minidnn.memory.joint.chains import Chain, chains
from minidnn.memory.joint.index import Gap, Index
from minidnn.memory.joint.linear import MB, Rows
from minidnn.memory.plan import Point
from minidnn.program import Tensor


class Behind:
    """The fates of tensors behind their uses: held, copied back, or run again.

    chained: {tensor: the chains that it stands in}
    back:    {tensor: whether it is copied back}
    again:   {(tensor, the gap of a chain): whether it runs again for that gap}
    holds:   for each chain (whether its tensors are held, the first point, the end, MB that are live between these)
    """

    def __init__(self, rows: Rows, index: Index, recompute: Mapping[Gap, int]) -> None:
        """recompute: {gap: the variable that says whether a run again ends it}"""
        self._rows, self._index, self._recompute = rows, index, recompute
        self.chains = chains(index, recompute)
        self.chained: dict[Tensor, list[Chain]] = defaultdict(list)
        for c in self.chains:
            for t in c.tensors:
                self.chained[t].append(c)
        self.back = {t: rows.var(high=float(index.may_offload(t))) for t in self.chained}
        self.again = {
            (t, c.gap): rows.var(high=1) for t, some in self.chained.items() if t in index.maker for c in some
        }
        held = {c.gap: rows.var(high=1) for c in self.chains}
        self.holds = [(held[c.gap], c.first, c.gap.use, c.held / MB) for c in self.chains if c.first < c.gap.use]
        for c, run, needed in self._wanted():
            for t in needed:
                ways = [held[c.gap], self.back[t], *([self.again[t, c.gap]] if (t, c.gap) in self.again else [])]
                rows.row([*((v, 1.0) for v in ways), (run, -1.0)], low=0)

    def _wanted(self) -> list[tuple[Chain, int, tuple[Tensor, ...]]]:
        """For each op of a chain: the chain, whether the op runs again for it, and what it then needs."""
        return [
            (c, self._recompute[c.gap] if t is c.gap.tensor else self.again[t, c.gap], needed)
            for c in self.chains
            for t, needed in c.needs.items()
        ]

    def runs(self, tensor: Tensor) -> list[tuple[int, Point]]:
        """(whether it runs again, the point that wants it), for each chain of the tensor."""
        if tensor not in self._index.maker:
            return []
        return [(self.again[tensor, c.gap], c.gap.use) for c in self.chained.get(tensor, ())]

    def parts(self, value: Sequence[float]) -> dict[Tensor, tuple[float, float]]:
        """{tensor: the parts (held, copied back) in a solution}, where some run needs most of it."""
        result: dict[Tensor, tuple[float, float]] = {}
        for c, run, needed in self._wanted():
            for t in needed if value[run] >= 0.5 else ():
                again = value[self.again[t, c.gap]] if (t, c.gap) in self.again else 0.0
                copied = value[self.back[t]]
                result[t] = max(result.get(t, (0.0, 0.0)), (1 - again - copied, copied))
        return result

    def copies(self, window: np.ndarray, leaves: Collection[Tensor]) -> tuple[list[int], list[int]]:
        """Variables of the MB that have been copied by the end of each window, (out, back): out from where they are
        written, back from behind their uses, and both by the end of the last of their chains.

        window: int (ops,); leaves: tensors that leave between uses, too, and then go out no second time"""
        index = self._index
        last = {t: int(window[max(c.gap.use for c in some)]) for t, some in self.chained.items()}
        out = {t: index.writers[t][0] for t in last if t not in index.inputs and t not in leaves}
        back = {t: index.uses[t][-1] + 1 for t in last}
        return self._copied(window, out, last), self._copied(window, back, last)

    def _copied(self, window: np.ndarray, first: Mapping[Tensor, Point], last: Mapping[Tensor, int]) -> list[int]:
        rows = self._rows
        may, must = defaultdict[int, list[tuple[int, float]]](list), defaultdict[int, list[tuple[int, float]]](list)
        for t, p in first.items():
            may[int(window[p])].append((self.back[t], t.nbytes / MB))
            must[last[t]].append((self.back[t], t.nbytes / MB))
        most = least = None
        result: list[int] = []
        for w in range(int(window[-1]) + 1):
            most, least = rows.sum(most, may[w]), rows.sum(least, must[w])
            copied = rows.var(high=rows.large)
            rows.row([(copied, 1), (most, -1)], high=0)
            rows.row([(copied, 1), (least, -1)], low=0)
            rows.row([(copied, 1), *([(result[-1], -1.0)] if result else [])], low=0)
            result.append(copied)
        return result
