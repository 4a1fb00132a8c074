"""A performance model of swapping: when each tensor may leave and must be back, so that copies hide behind compute.

A step is taken as three clocks, as in the simulator: ops follow one another, and copies serialise per direction. Costs
gives the times of ops and copies. So a prediction takes one pass over the ops and needs no schedule.

`Model.windows` finds the offload intervals of a set of tensors under a limit of live bytes. It makes two passes that
mirror each other, each of them O(ops). One runs forward in time. Copies out run in the order in which tensors get their
last value. An op waits for the oldest of them only if it would not fit otherwise. The other runs backward in time. It
"copies out" first the tensors that backward needs last, and finds the latest points at which copies back may begin.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from minidnn.costs import Costs
from minidnn.memory.plan import OffloadInterval, Plan, Point, in_place_sharing
from minidnn.memory.policies.shared.probe import aligned_curve, listing
from minidnn.memory.schedule import aligned
from minidnn.program import FORWARD, Algorithm, Op, Program, Role, Tensor

SWAPPED = frozenset({Role.INPUT, Role.ACTIVATION, Role.EXTRA, Role.COPY})
SMALL = 1000  # a tensor of less than 1/1000 of the largest is not worth the start of a copy


@dataclass(frozen=True, eq=False)
class Candidate:
    """A tensor that idles between its last use in forward and its first in backward, [last, use)."""

    tensor: Tensor
    nbytes: int  # aligned, as placement counts it
    written: Point | None  # the copy out may begin here, beside readers; None: the host still has it
    last: Point  # no op from here on uses it ...
    use: Point  # ... before this one
    leaving: float  # seconds of the copy out
    returning: float  # seconds of the copy back


@dataclass(frozen=True)
class Prediction:
    """The predicted effect of a set of offload intervals. `peak` is of aligned bytes: no placement of the plan can be
    lower."""

    seconds: float
    stall: float  # seconds that compute waits for copies
    peak: int
    exposed: Mapping[Tensor, float]  # the part of `stall` that each tensor's copies cause


class Model:
    """The costs of one program with its algorithms chosen: seconds of ops, live bytes without offloads, candidates."""

    def __init__(
        self, program: Program, costs: Costs, algorithm: Mapping[Op, Algorithm], again: Plan | None = None
    ) -> None:
        """again: a plan whose order, with ops that run again, and whose sharing take the place of the program's own"""
        self.costs = costs
        self.plan = again or Plan(program.ops, algorithm=algorithm, share=in_place_sharing(program))
        self.order = self.plan.order
        result = listing(program, costs, self.plan)
        self.own = result.plan.offloads  # offload intervals of inputs and outputs
        self.seconds = [costs.seconds(op, algorithm[op]) for op in self.order]
        self.clock = np.concatenate(([0.0], np.cumsum(self.seconds)))
        self.live = aligned_curve(result)  # aligned bytes at each op
        self.rank = {t: i for i, t in enumerate(program.tensors)}
        self.written: dict[Tensor, Point] = {}  # {tensor: the point after its last write in forward}
        self.last: dict[Tensor, Point] = {}  # {tensor: the point after its last use in forward}
        self.candidates = self._candidates(program)

    @property
    def peak(self) -> int:
        """The most aligned bytes live at any op, without offloads."""
        return int(self.live.max(initial=0))

    def idle(self, c: Candidate) -> float:
        """Seconds of compute in which no op uses the tensor."""
        return float(self.clock[c.use] - self.clock[c.last])

    def _candidates(self, program: Program) -> list[Candidate]:
        """The tensors that idle between forward and backward, without very small ones."""
        written = self.written
        last = self.last
        use: dict[Tensor, Point] = {}
        for p, op in enumerate(self.order):
            forward = op.during in FORWARD and p < program.forward  # a run again is a use of backward's
            for t in op.tensors:
                if forward:
                    last[t] = p + 1
                else:
                    use.setdefault(t, p)
            for t in op.writes:
                if forward:
                    written[t] = p + 1
                elif use[t] == p and t not in op.reads:
                    use.pop(t)  # a new value, so forward's need not be kept for it
                    last.pop(t, None)
        fixed, inputs = {*program.persistent, *program.outputs}, set(program.inputs)
        idle = [
            t
            for t in program.tensors
            if t.role in SWAPPED and t not in fixed and t in last and last[t] < use.get(t, 0) and t.nbytes
        ]
        least = max((t.nbytes for t in idle), default=0) // SMALL
        return [
            Candidate(
                t, aligned(t.nbytes), None if t in inputs and t not in written else written[t], last[t], use[t],
                self.costs.latency + t.nbytes / self.costs.bandwidth_out,
                self.costs.latency + t.nbytes / self.costs.bandwidth_in,
            )
            for t in idle
            if t.nbytes >= least
        ]  # fmt: skip

    # ---- windows

    def windows(self, candidates: Iterable[Candidate], limit: int) -> list[OffloadInterval] | None:
        """Offload intervals of these tensors that keep live bytes within `limit`; None if the limit cannot be kept.

        Each offload interval is as long as its copies stay hidden, or longer where the limit needs that. A tensor that
        could not be away at all has no offload.
        """
        candidates = list(candidates)
        back = self._returns(candidates, limit)
        return None if back is None else self._leaves(candidates, back, limit)

    def narrowest(self) -> list[OffloadInterval]:
        """Offload intervals of all candidates that leave at once and come back at the last moment: least memory,
        nothing hidden."""
        return [OffloadInterval(c.tensor, c.written, c.last, c.use, c.use) for c in self.candidates]

    def tightened(self, offloads: Iterable[OffloadInterval], slack: int) -> list[OffloadInterval]:
        """The same offload intervals with longer windows.

        No tensor stays more than `slack` ops beyond its last use, or comes back more than `slack` ops before its first.
        Lives that nest like brackets are placed without gaps between them.
        """
        return [
            replace(
                t,
                free_at=min(t.free_at, self.last[t.tensor] + slack),  # type: ignore[type-var]
                prefetch_at=max(t.prefetch_at, t.needed_at - slack),  # type: ignore[type-var, operator]
            )
            for t in offloads
        ]

    def _returns(self, candidates: Sequence[Candidate], limit: int) -> dict[Candidate, Point] | None:
        """{candidate: the latest point at which its copy back may begin}; None if the limit cannot be kept.

        Time runs backward here, from the end of the step.
        """
        uses: dict[Point, list[Candidate]] = defaultdict(list)
        lasts: dict[Point, list[Candidate]] = defaultdict(list)
        for c in candidates:
            uses[c.use].append(c)
            lasts[c.last].append(c)
        least = self.without((c.nbytes, c.last, c.use) for c in candidates).tolist()
        back: dict[Candidate, Point] = {}
        given_up: set[Candidate] = set()
        queue: deque[tuple[float, Candidate]] = deque()  # (when its copy is done, candidate)
        now = link = 0.0
        held = 0  # bytes of the tensors in the queue
        for p in range(len(self.seconds) - 1, -1, -1):
            for c in uses.get(p + 1, ()):
                link = max(link, now) + c.returning
                queue.append((link, c))
                held += c.nbytes
            for c in lasts.get(p + 1, ()):
                if c not in back:  # it would come back before it has left, so it stays
                    given_up.add(c)
                    held -= c.nbytes
            while queue and (queue[0][0] <= now or least[p] + held > limit or queue[0][1] in given_up):
                done, c = queue.popleft()
                if c not in given_up:
                    now = max(now, done)
                    back[c] = p + 1
                    held -= c.nbytes
            if least[p] + held > limit:
                return None
            now += self.seconds[p]
        return back

    def _leaves(
        self, candidates: Sequence[Candidate], back: Mapping[Candidate, Point], limit: int
    ) -> list[OffloadInterval] | None:
        """Offload intervals with the earliest points at which bytes are free without waiting, or earlier where the
        limit needs that.

        None: the limit cannot be kept.
        """
        starts: dict[Point, list[Candidate]] = defaultdict(list)
        lasts: dict[Point, list[Candidate]] = defaultdict(list)
        ends: dict[Point, list[Candidate]] = defaultdict(list)
        for c in candidates:
            if c in back:
                lasts[c.last].append(c)
                ends[back[c]].append(c)
                if c.written is not None:
                    starts[c.written].append(c)
        done: dict[Candidate, float] = {}
        free: dict[Candidate, Point] = {}
        ready: list[tuple[float, int, Candidate]] = []  # tensors no longer used, by when their copies are done
        now = link = 0.0
        gone = pushed = 0
        for p, live in enumerate(self.live.tolist()):
            for c in starts.get(p, ()):
                done[c] = link = max(link, now) + c.leaving
            for c in lasts.get(p, ()):
                pushed += 1
                heappush(ready, (done.get(c, 0.0), pushed, c))
            for c in ends.get(p, ()):
                if c in free:
                    gone -= c.nbytes
            while ready and (ready[0][0] <= now or live - gone > limit):
                when, _, c = heappop(ready)
                if p < back[c]:
                    now = max(now, when)
                    free[c] = p
                    gone += c.nbytes
            if live - gone > limit:
                return None
            now += self.seconds[p]
        return [OffloadInterval(c.tensor, c.written, free[c], back[c], c.use) for c in candidates if c in free]

    # ---- the effect of offload intervals

    def without(self, away: Iterable[tuple[int, Point, Point]]) -> np.ndarray:
        """Live bytes at each op, int64 (ops,), less the bytes that are away.

        away: (bytes, from, to): so many bytes are away over the points [from, to)
        """
        change = np.zeros(len(self.live) + 1, np.int64)
        for nbytes, lo, hi in away:
            change[lo] += nbytes
            change[hi] -= nbytes
        return self.live - np.cumsum(change)[:-1]

    def curve(self, offloads: Iterable[OffloadInterval]) -> np.ndarray:
        """Live bytes at each op under these offload intervals, int64 (ops,)."""
        return self.without((aligned(t.tensor.nbytes), t.free_at, t.prefetch_at) for t in offloads)  # type: ignore[misc]

    def predict(self, offloads: Sequence[OffloadInterval]) -> Prediction:
        """The time and live peak of a step under these offload intervals. Inputs come and outputs leave in addition."""
        out, back, latency = self.costs.bandwidth_out, self.costs.bandwidth_in, self.costs.latency
        every = sorted((*self.own, *offloads), key=lambda t: self.rank[t.tensor])  # as the lowering issues them
        leaves, frees, comes, arrives = (defaultdict[Point, list[int]](list) for _ in range(4))
        # {input: the point after its copy in was issued}
        first = {t.tensor: t.prefetch_at + 1 for t in self.own if t.free_at is None and t.prefetch_at is not None}
        for i, offload in enumerate(every):
            if offload.offload_at is not None:
                leaves[max(offload.offload_at, first.get(offload.tensor, 0))].append(i)
                if offload.free_at is not None:
                    frees[offload.free_at].append(i)
            if offload.prefetch_at is not None and offload.needed_at is not None:
                comes[offload.prefetch_at].append(i)
                arrives[offload.needed_at].append(i)
        ended = [0.0] * len(every)  # copies out, then overwritten by the copies back
        exposed: dict[Tensor, float] = defaultdict(float)
        computed = waited = 0.0  # compute's clock after its last op, and after waits since then
        link_out = link_in = freed = stall = 0.0
        ends = [0.0]  # compute's clock at each point, before its waits
        arrived: dict[Tensor, float] = {}  # when the last copy in of a tensor ends
        for p in range(len(self.seconds) + 1):
            for i in leaves.get(p, ()):
                t = every[i].tensor
                begins = max(link_out, ends[self.written.get(t, 0)], arrived.get(t, 0.0))
                ended[i] = link_out = begins + latency + t.nbytes / out
            for i in frees.get(p, ()):
                freed = max(freed, ended[i])
                exposed[every[i].tensor] += max(0.0, ended[i] - waited)
                waited = max(waited, ended[i])
            for i in sorted(comes.get(p, ()), key=lambda i: every[i].needed_at or 0):
                begins = max(link_in, computed, freed, ended[i])
                arrived[every[i].tensor] = ended[i] = link_in = begins + latency + every[i].tensor.nbytes / back
            for i in arrives.get(p, ()):
                exposed[every[i].tensor] += max(0.0, ended[i] - waited)
                waited = max(waited, ended[i])
            stall += waited - computed
            if p < len(self.seconds):
                computed = waited = waited + self.seconds[p]
                ends.append(computed)
        peak = int(self.curve(offloads).max(initial=0))
        return Prediction(max(waited, link_out, link_in), stall, peak, exposed)
