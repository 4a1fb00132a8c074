"""The rows of the linear program whose least value bounds the seconds of a step; bound.py explains them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from minidnn.memory.joint.behind import Behind
from minidnn.memory.joint.dragged import Dragged, dragged
from minidnn.memory.joint.index import LONG, Gap, Index, large, overwrites
from minidnn.memory.joint.linear import MB, MS, Rows
from minidnn.memory.lowering.host import place
from minidnn.memory.plan import Point
from minidnn.memory.schedule import room
from minidnn.program import Tensor

Runs = list[tuple[int, Point]]  # (the variable of a run, the point that wants it)


class BoundRows(Rows):
    """The program of a bound, without its budget.

    memory:    (row of the live bytes at an op, their constant part in MB)
    over:      the variable of bytes beyond the budget, which `LowerBound.least` minimises; else it is 0
    needs:     float64 (ops,), MB that each op takes at least, workspace apart: its operands, with all bytes shared that
               may be, and all that lives on the device for the whole step
    behind:    what runs again need of tensors behind their uses
    least:     MB that any plan takes, if time is no matter and tensors may be copied
    free:      host-resident tensors that may live on the device instead
    on_device: {tensor of `free` that is worth a decision: whether it lives on the device}; of a long program none, so
               that such tensors take bytes and copies of no sure number, and none are counted between their uses
    """

    def __init__(self, index: Index, windows: int, worst: int, free: frozenset[Tensor] = frozenset()) -> None:
        super().__init__()
        self.index, self.free, self.given = index, free, frozenset(index.inputs)
        costs = index.costs
        self.share = max(1.0, sum(costs.duplex))  # seconds of copies alone in a second, both ways together
        self.out, self.back = (rate / MB * MS for rate in (costs.bandwidth_out, costs.bandwidth_in))
        self.most = sum(t.nbytes for t in index.program.tensors) / MB
        self.most += max(c[-1].algorithm.workspace for c in index.choices) / MB
        self.large = 3 * self.most + 2 * sum(g.tensor.nbytes for g in index.gaps) / MB  # more than all sums of bytes
        slowest = sum(c[0].seconds for c in index.choices) / MS
        self.long = 100 * (slowest + self.most / self.out + self.most / self.back)  # ms: no bound is as large
        self.edges = _edges(index, windows)
        self.window = np.repeat(np.arange(len(self.edges) - 1), np.diff(self.edges))
        self.keep: dict[Gap, int] = {}
        self.offload: dict[Gap, int] = {}
        self.recompute: dict[Gap, int] = {}
        self.faster = [[self.var(high=1, whole=True) for _ in c[1:]] for c in index.choices]
        for several in self.faster:
            if len(several) > 1:
                self.row([(v, 1) for v in several], high=1)
        worth = large(index)
        decided = [t for t in index.program.host_resident if t in free and t in worth] if len(index.ops) <= LONG else []
        self.on_device = {t: self.var(high=1, whole=True) for t in decided}
        self._gaps()
        self.behind = Behind(self, index, self.recompute)
        self.elapsed = [self.var(1, high=self.long) for _ in self.edges[1:]]
        self.begin = self.var(1, high=self.long)  # before the first op
        self.gone, self.came = ([self.var(high=self.large) for _ in self.elapsed] for _ in range(2))
        self.all_gone, self.all_came = self.gone, self.came  # with the copies of tensors behind their uses
        if self.behind.chains:
            self.all_gone, self.all_came = ([self.var(high=self.large) for _ in self.elapsed] for _ in range(2))
        self._time()
        self._copies()
        self.over = self.var(high=0)
        self.memory: list[tuple[int, float]] = []
        self._memory(worst)

    # ---- what becomes of a tensor in a gap

    def _gaps(self) -> None:
        for g in self.index.gaps:
            if g.tensor in self.free and g.tensor not in self.on_device:
                continue
            self.keep[g] = self.var(high=1, whole=True)
            self.offload[g] = self.var(high=float(self.index.may_offload(g.tensor)), whole=True)
            if g.tensor in self.index.maker:
                self.recompute[g] = self.var(high=1, whole=True)
            self.row([(v[g], 1) for v in (self.keep, self.offload, self.recompute) if g in v], low=1)
            if g.tensor in self.on_device:
                self.row([(self.keep[g], 1), (self.on_device[g.tensor], -1)], low=0)

    def _from_host(self, t: Tensor) -> tuple[float, list[tuple[int, float]]]:
        """The bytes in MB that come from the host, or go back there, for sure, and less these for a tensor on
        the device. Bytes of tensors that are not worth a decision are not counted."""
        if t in self.on_device:
            return t.nbytes / MB, [(self.on_device[t], -t.nbytes / MB)]
        return (0.0 if t in self.free else t.nbytes / MB), []

    # ---- time

    def _time(self) -> None:
        """Rows of elapsed time. A rerun may come long before its window, so reruns count in sums from the start."""
        reruns: dict[int, list[tuple[int, Point]]] = defaultdict(list)  # {window: (runs, maker)}
        for maker, results in self._by_maker().items():
            (gaps, behind), *more = results
            if more:  # one run makes all results
                sums = [[*gaps, run] for gaps, behind in results for run in behind] + [gaps for gaps, _ in results]
                self._several(reruns, maker, [one for one in sums if one])
                continue
            for run, use in gaps:
                reruns[self.window[use]].append((run, maker))
            if behind:
                self._several(reruns, maker, [[run] for run in behind])
        for each in dragged(self.index):
            self._elapsed(each, reruns)

    def _elapsed(self, counted: Dragged, reruns: Mapping[int, Sequence[tuple[int, Point]]]) -> None:
        """Rows of the time of each window, and of all windows up to it, with what copies drag."""
        slack = None
        for w, d in enumerate(self.elapsed):
            ops = range(self.edges[w], self.edges[w + 1])
            slow = sum(counted.seconds[p][0] for p in ops) / MS
            own = [(d, 1.0), *self._dragged(w, counted.drag)]
            for p in ops:
                least, *others = counted.seconds[p]
                own += [(v, (least - other) / MS) for v, other in zip(self.faster[p], others, strict=True)]
            self.row(own, low=slow)
            again = [(runs, -min(counted.seconds[maker]) / MS) for runs, maker in reruns.get(w, ())]
            before: list[tuple[int, float]] = [] if slack is None else [(slack, 1.0)]
            slack = self.var(high=self.long)
            self.row([*own, *again, *before, (slack, -1)], slow, slow)

    def _dragged(self, w: int, drag: tuple[float, float]) -> list[tuple[int, float]]:
        """Less the time that the copies of a window take from its ops. Copies before the first op take nothing."""
        result = []
        for total, rate, part in zip((self.all_gone, self.all_came), (self.out, self.back), drag, strict=True):
            if part:
                result.append((total[w], -part / rate))
                if w:
                    result.append((total[w - 1], part / rate))
                elif total is self.all_came:
                    result.append((self.begin, part))
        return result

    def _several(
        self, reruns: dict[int, list[tuple[int, Point]]], maker: Point, sums: Sequence[Sequence[tuple[int, Point]]]
    ) -> None:
        """Count runs of one maker, which are at least as many as each of these sums says."""
        runs = sums[0][0][0]
        if len(sums) > 1 or len(sums[0]) > 1:
            runs = self.var(high=max(map(len, sums)))
            for one in sums:
                self.row([(runs, 1), *((run, -1) for run, _ in one)], low=0)
        reruns[self.window[max(use for one in sums for _, use in one)]].append((runs, maker))

    def _by_maker(self) -> dict[Point, list[tuple[Runs, Runs]]]:
        """{maker: for each of its results the runs that end its gaps, and those behind its uses}.

        The former lie apart in time, and before the latter. One run may serve several chains behind its uses."""
        gaps: dict[Tensor, Runs] = defaultdict(list)
        for g, run in self.recompute.items():
            gaps[g.tensor].append((run, g.use))
        result: dict[Point, list[tuple[Runs, Runs]]] = defaultdict(list)
        for t in dict.fromkeys([*gaps, *(t for t, _ in self.behind.again)]):
            result[self.index.maker[t]].append((gaps[t], self.behind.runs(t)))
        return result

    # ---- copies

    def _copies(self) -> None:
        """Rows of the bytes that have been copied by the end of each window."""
        index = self.index
        leaves: dict[Tensor, int] = {}  # whether it is copied out at all
        written: dict[int, list[tuple[int, float]]] = defaultdict(list)
        ended: dict[int, list[Gap]] = defaultdict(list)
        come, less = np.zeros(len(self.elapsed)), defaultdict[int, list[tuple[int, float]]](list)  # at their first use
        go = np.zeros(len(self.elapsed))  # new values of host-resident tensors
        for t, p in index.arrives.items():
            sure, terms = self._from_host(t)
            come[self.window[p]] += sure
            less[self.window[p]] += terms
        changed: list[tuple[int, float]] = []
        for t in index.program.host_resident:
            if index.writers[t]:
                sure, terms = self._from_host(t)
                w = self.window[index.writers[t][-1]]
                go[w] += sure
                written[w] += terms
                changed += terms
        for g, offload in self.offload.items():
            ended[self.window[g.use]].append(g)
            if g.tensor in self.given:
                continue
            if g.tensor not in leaves:
                leaves[g.tensor] = self.var(high=1)
                first = index.writers[g.tensor][0] if index.writers[g.tensor] else 0
                written[self.window[first]].append((leaves[g.tensor], g.tensor.nbytes / MB))
            self.row([(leaves[g.tensor], 1), (offload, -1)], low=0)
        for t, back in self.behind.back.items():
            if t in leaves:
                self.row([(leaves[t], 1), (back, -1)], low=0)
        self._on_host(leaves)
        may = must = first_time = None
        for w, d in enumerate(self.elapsed):
            may = self.sum(may, written[w], go[w])
            returned = [(self.offload[g], g.tensor.nbytes / MB) for g in ended[w]]
            must = self.sum(must, [*returned, *less[w]], come[w])
            crossing = zip(ended[w], returned, strict=True)
            first_time = self.sum(first_time, [r for g, r in crossing if g.crosses and g.tensor not in self.given])
            for total, rate in ((self.all_gone, self.out), (self.all_came, self.back)):
                before = [(total[w - 1], -1.0)] if w else []
                early = [(self.begin, -rate)] if not w and total is self.all_came else []
                self.row([(total[w], 1), *before, *early, (d, -rate)], high=0)
            for total in self.gone, self.came:
                self.row([(total[w], 1), *([(total[w - 1], -1)] if w else [])], low=0)
            self._both_ways(w)
            self.row([(self.gone[w], 1), (may, -1)], high=0)
            self.row([(self.came[w], 1), (must, -1)], low=0)
            self.row([(self.gone[w], 1), (first_time, -1)], low=0)
        if go.any():
            self.row([(self.gone[-1], 1), *((v, -factor) for v, factor in changed)], low=float(go.sum()))
        at_once = [self._from_host(t) for t, p in index.arrives.items() if p == 0]
        less_at_once = [(v, -factor) for _, terms in at_once for v, factor in terms]
        self.row([(self.begin, self.back), *less_at_once], low=sum(sure for sure, _ in at_once))
        if self.behind.chains:
            gone, came = self.behind.copies(self.window, leaves)
            for every, total, copied in ((self.all_gone, self.gone, gone), (self.all_came, self.came, came)):
                for w in range(len(every)):
                    self.row([(every[w], 1), (total[w], -1), (copied[w], -1)], 0, 0)

    def _both_ways(self, w: int) -> None:
        """A row of what a window copies in both directions, if copies slow each other down."""
        if self.share >= 2:
            return
        terms = [(self.elapsed[w], -self.share), *([] if w else [(self.begin, -self.share)])]
        for total, rate in ((self.all_gone, self.out), (self.all_came, self.back)):
            terms += [(total[w], 1 / rate), *([(total[w - 1], -1 / rate)] if w else [])]
        self.row(terms, high=0)

    def _on_host(self, leaves: Mapping[Tensor, int]) -> None:
        """A row of the host's bytes, each tensor with a place of its own; none with a ring."""
        index = self.index
        if index.host_room is None or index.costs.staging is not None:
            return
        all_on_host = sum(place(t, index.costs) for t in self.on_device) / MB
        terms = [(v, index.place(t) / MB) for t, v in leaves.items()]
        terms += [(on_device, -place(t, index.costs) / MB) for t, on_device in self.on_device.items()]
        self.row(terms, high=max(0, index.host_room) / MB - all_on_host)

    # ---- bytes

    def _memory(self, worst: int) -> None:
        """Rows of live bytes at the worst ops of each window."""
        index = self.index
        base, discounts = self._own_bytes()
        change: dict[Point, list[tuple[int, float]]] = defaultdict(list)  # of bytes that stay
        left: dict[Point, list[tuple[int, float]]] = defaultdict(list)  # of bytes that leave
        ended: dict[Point, list[tuple[int, float]]] = defaultdict(list)  # of bytes that came back
        come = np.zeros(len(index.ops))
        for g, keep in self.keep.items():
            size = g.tensor.nbytes / MB
            change[g.last + 1].append((keep, size))
            change[g.use].append((keep, -size))
            ended[g.use].append((self.offload[g], size))
            if g.crosses and g.tensor not in self.given:
                left[g.last + 1].append((self.offload[g], size))
        for held, first, end, size in self.behind.holds:
            change[first].append((held, size))
            change[end].append((held, -size))
        for t, p in index.arrives.items():
            sure, terms = self._from_host(t)
            come[p] += sure
            ended[p] += terms
        for t, on_device in self.on_device.items():
            change[0].append((on_device, t.nbytes / MB))
            change[index.uses[t][0]].append((on_device, -t.nbytes / MB))
            change[index.uses[t][-1] + 1].append((on_device, t.nbytes / MB))
        self.needs = self._needs(base, discounts)
        self.least = float((self.needs + [c[0].algorithm.workspace / MB for c in index.choices]).max())
        chosen = self._worst(base, worst)
        stay = gone = came = None
        behind: list[list[tuple[int, float]]] = [[], [], []]
        arrived = 0.0
        for p in range(len(index.ops)):
            for pending, more in zip(behind, (change[p], left[p], ended[p]), strict=True):
                pending += more
            arrived += come[p]
            if p not in chosen:
                continue
            w = self.window[p]
            stay = self.sum(stay, _joined(behind[0]))
            gone = self.sum(gone, behind[1])
            came = self.sum(came, behind[2], arrived)
            behind, arrived = [[], [], []], 0.0
            out = self.var(high=self.large)  # bytes that have left, and been copied out
            early = self.var(high=self.large)  # bytes that are back before their use
            self.row([(out, 1), (gone, -1)], high=0)
            self.row([(out, 1), (self.gone[w], -1)], high=0)
            self.row([(early, 1), (came, 1), *([(self.came[w - 1], -1)] if w else [])], low=0)
            terms = [(stay, 1.0), (gone, 1.0), (out, -1.0), (early, 1.0), (self.over, -1.0)]
            lean = index.choices[p][0].algorithm.workspace
            for v, c in zip(self.faster[p], index.choices[p][1:], strict=True):
                terms.append((v, (c.algorithm.workspace - lean) / MB))
            terms += discounts.get(p, [])
            self.memory.append((self.row(terms), base[p] + lean / MB))

    def _own_bytes(self) -> tuple[np.ndarray, dict[Point, list[tuple[int, float]]]]:
        """(MB of persistent tensors and of each op's own, for sure; {op: (variable, -MB) of bytes that may be
        shared})."""
        index = self.index
        persistent = sum(room(index.program, t) for t in index.persistent) / MB
        base = np.full(len(index.ops), persistent)
        gap = {(g.tensor, g.last): g for g in index.gaps}
        discounts: dict[Point, list[tuple[int, float]]] = {}
        for p, op in enumerate(index.ops):
            base[p] += sum(t.nbytes for t in op.tensors if t not in index.persistent) / MB
            pairs: dict[Tensor, list[Tensor]] = defaultdict(list)
            for read, write in overwrites(index, p):
                pairs[write].append(read)
            for write, reads in pairs.items():
                shared = {a: min(a.nbytes, write.nbytes) / MB for a in reads}
                sure = max((n for a, n in shared.items() if (a, p) not in gap), default=0.0)
                base[p] -= sure
                maybe = []
                for a, n in shared.items():
                    if (a, p) in gap and n > sure:
                        taken = self.var(high=1)
                        self.row([(taken, 1), (self.keep[gap[a, p]], 1)], high=1)
                        maybe.append(taken)
                        discounts.setdefault(p, []).append((taken, sure - n))
                if len(maybe) > 1:
                    self.row([(v, 1) for v in maybe], high=1)
        return base, discounts

    def _needs(self, base: np.ndarray, discounts: Mapping[Point, Sequence[tuple[int, float]]]) -> np.ndarray:
        """The need of each op in MB, workspace apart, with all bytes shared that may be."""
        needs = base.copy()
        for p, several in discounts.items():
            needs[p] += sum(factor for _, factor in several)
        return needs

    def _worst(self, base: np.ndarray, count: int) -> set[Point]:
        """The ops of each window that would have most live bytes if nothing left, with and without workspaces."""
        index = self.index
        change = np.zeros(len(index.ops) + 1)
        for g in index.gaps:
            change[g.last + 1] += g.tensor.nbytes / MB
            change[g.use] -= g.tensor.nbytes / MB
        live = base + np.cumsum(change)[:-1]
        live += [c[-1].algorithm.workspace / MB for c in index.choices]
        result: set[Point] = set()
        for lo, hi in zip(self.edges, self.edges[1:], strict=False):
            ops = sorted(range(lo, hi), key=lambda p: -live[p])
            result.update(ops[:count])
            result.update([p for p in ops if self.faster[p]][:count])
        return result


def _edges(index: Index, windows: int) -> list[Point]:
    """The first ops of the windows, and the number of ops. Windows are alike in time, and a little in number of ops."""
    seconds = np.array([c[-1].seconds for c in index.choices])
    weight = seconds / seconds.sum() + 0.3 / len(seconds)
    share = np.concatenate(([0.0], np.cumsum(weight / weight.sum())))
    firsts = np.searchsorted(share, np.arange(1, windows) / windows)
    return sorted({0, len(seconds), *(int(p) for p in firsts)})


def _joined(terms: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """The terms with each variable once, without those that cancel out."""
    result: dict[int, float] = defaultdict(float)
    for variable, factor in terms:
        result[variable] += factor
    return [(v, f) for v, f in result.items() if f]
