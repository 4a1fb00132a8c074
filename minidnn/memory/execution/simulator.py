"""The simulator: a machine made of clocks, one per stream. It runs a schedule against a cost table, without kernels."""

from __future__ import annotations

from minidnn.costs import MOST_DRAG, Costs
from minidnn.memory.execution.trace import Span, Trace, awaited, memory_curve, name_of
from minidnn.memory.schedule import (
    STREAMS,
    Alloc,
    Compute,
    Fetch,
    Free,
    Instruction,
    Listing,
    Offload,
    Prefetch,
    Stash,
    Stream,
    Wait,
)

CONCURRENT: tuple[Stream, ...] = ("out", "in", "net", "host")  # the streams whose work slows compute down


def simulate(schedule: Listing, costs: Costs) -> Trace:
    """The trace of one step on the device that `costs` describes.

    It depends on no place of bytes, so a listing will do. A stream runs its instructions one after another, in the
    order of the schedule. Copies and communications slow ops down as far as the costs say (Costs.dragged,
    Costs.net_drag, Costs.host_drag), and nothing else slows anything down.
    """
    run = _Run(schedule, costs)
    for i, x in run.queues["compute"]:
        run.copy()  # all copies that can overlap this op: the others wait for it
        run.take(i, x)
    run.copy()
    spans = tuple(sorted(run.spans, key=lambda span: span.index))
    waits = tuple(sorted(run.waits, key=lambda span: span.index))
    seconds, memory = max(run.clock.values()), memory_curve(schedule, run.moments)
    return Trace(spans, seconds, run.stall, memory, waits, tuple(run.moments))


class _Run:
    """A step under way. The streams of copies are ahead of compute, as far as their waits allow."""

    def __init__(self, schedule: Listing, costs: Costs) -> None:
        self.schedule, self.costs = schedule, costs
        self.clock: dict[Stream, float] = dict.fromkeys(STREAMS, 0.0)
        self.finished: dict[int, float] = {}
        self.spans: list[Span] = []
        self.waits: list[Span] = []
        self.moments: list[tuple[int, float]] = []
        self.stall = 0.0
        self.queues: dict[Stream, list[tuple[int, Instruction]]] = {stream: [] for stream in STREAMS}
        for i, x in enumerate(schedule.instructions):
            self.queues["compute" if isinstance(x, (Alloc, Free)) else x.stream].append((i, x))
        self.done = dict.fromkeys(STREAMS[1:], 0)  # of the copies' queues
        self.concurrent = _Concurrent()

    def copy(self) -> None:
        """Run the copy streams until each waits for an instruction that is not finished."""
        moved = True
        while moved:
            moved = False
            for stream in self.done:
                queue = self.queues[stream]
                while self.done[stream] < len(queue):
                    i, x = queue[self.done[stream]]
                    if isinstance(x, Wait) and x.on not in self.finished:
                        break
                    self.take(i, x)
                    self.done[stream] += 1
                    moved = True

    def take(self, i: int, x: Instruction) -> None:
        """Run instruction i, which waits for nothing that is not finished."""
        if isinstance(x, Wait):
            start = self.clock[x.stream]
            behind = self.finished[x.on] - start
            if behind > 0:
                self.clock[x.stream] += behind
                self.waits.append(Span(i, x.stream, awaited(self.schedule, x), start, self.clock[x.stream]))
                self.stall += behind if x.stream == "compute" else 0.0
        elif isinstance(x, (Alloc, Free)):
            self.moments.append((i, self.clock["compute"]))
        else:
            start, seconds = self.clock[x.stream], _seconds(x, self.schedule, self.costs)
            end = start + seconds
            if x.stream in CONCURRENT:
                self.concurrent.moves[CONCURRENT.index(x.stream)].append((start, end))
            elif isinstance(x, Compute) and any(drags := _drags(x, self.costs)):
                end = self.concurrent.end(start, seconds, drags)
            self.finished[i] = self.clock[x.stream] = end
            self.spans.append(Span(i, x.stream, name_of(x), start, end))


class _Concurrent:
    """The copies and communications beside which ops run."""

    def __init__(self) -> None:
        self.moves: tuple[list[tuple[float, float]], ...] = tuple([] for _ in CONCURRENT)  # (start, end), by stream
        self.next = [0] * len(CONCURRENT)  # the first of each list that has not ended

    def end(self, start: float, work: float, drag: tuple[float, ...]) -> float:
        """The moment at which an op ends that begins at `start` and takes `work` seconds alone."""
        now = start
        while True:
            rate, change = 1.0, float("inf")
            for i, moves in enumerate(self.moves):
                while self.next[i] < len(moves) and moves[self.next[i]][1] <= now:
                    self.next[i] += 1
                if self.next[i] < len(moves):
                    begins, ends = moves[self.next[i]]
                    if begins <= now:
                        rate -= drag[i]
                    change = min(change, ends if begins <= now else begins)
            rate = max(rate, 1 - MOST_DRAG)
            if now + work / rate <= change:
                return now + work / rate
            work -= (change - now) * rate
            now = change


def _drags(x: Compute, costs: Costs) -> tuple[float, float, float, float]:
    """What a second of each of CONCURRENT takes from the work of an op."""
    return *costs.dragged(x.op, costs.choice(x.op, x.algorithm)), costs.net_drag, costs.host_drag


def _seconds(x: Compute | Offload | Prefetch | Stash | Fetch, schedule: Listing, costs: Costs) -> float:
    if isinstance(x, Compute):
        return costs.host_seconds(x.op) if x.stream == "host" else costs.seconds(x.op, x.algorithm)
    if isinstance(x, (Stash, Fetch)):
        assert schedule.staging is not None
        seconds = schedule.staging.stash_seconds if isinstance(x, Stash) else schedule.staging.fetch_seconds
        return seconds(x.staging_slot.tensor.nbytes, x.staging_slot.tensor in schedule.disk_offset)
    bandwidth = costs.bandwidth_out if isinstance(x, Offload) else costs.bandwidth_in
    return costs.latency + x.residency.tensor.nbytes / bandwidth
