"""A check that all work of the cuda backend is ordered where it must be, by vector clocks over the real byte ranges.

A lane is a sequence of work that CUDA or a thread keeps in order by itself. Each of the host's threads is a lane, and
each stream, and in a captured graph the branch of each side stream (a replay keeps only the order that the capture
saw). Each access of bytes gets its lane's next number. For each range of bytes the check remembers the last write, and
the last read of each lane, so it takes about n log n. Two accesses to the same byte, of which one writes, must be
ordered.

    python -m tests.support.cuda.races --mutants 5000    # waits and records lost or misplaced in captured steps
    python -m tests.support.cuda.races --mutants 5000 --of resnet18 --policies vdnn_all
    python -m tests.support.cuda.races --nets            # resnet50 and googlenet under every policy, as they are
    python -m tests.support.cuda.races --nets --card h200   # with real cuDNN's plans, where it is installed
"""

from __future__ import annotations

import argparse
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from random import Random
from time import perf_counter

from minidnn.backends.cuda.device import CudaDevice
from minidnn.costs import Staging, estimate
from minidnn.jobs.solver_file import understand
from minidnn.memory.planning import arrange
from minidnn.memory.schedule import Arrangement
from minidnn.optimizers import SGD
from minidnn.program import Program
from minidnn.programs.build import programs
from minidnn.programs.fusion import as_cuda
from minidnn.programs.spec import TrainSpec
from minidnn.sizes import text
from minidnn.zoo import load
from tests.support.cuda import orders as cuda_orders
from tests.support.cuda.recorder import Entry, Followed, lived, recording_device
from tests.support.paths import NET_FILES, SMALL_NETS
from tests.support.policies import FEW

Clock = list[int]


class Race(AssertionError):
    """Two accesses to one byte, of which one writes, are not ordered."""


class IllegalCapture(AssertionError):
    """CUDA would refuse the capture."""


# ---- bytes -----------------------------------------------------------------------------------------------------


class Ranges:
    """Disjoint ranges of bytes that have been touched, each with its last write and the reads since, by lane."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.states: list[tuple[tuple[int, int, Entry] | None, dict[int, tuple[int, Entry]]]] = []

    def _cut(self, at: int) -> int:
        """Split the range around this byte, if there is one, so that a range begins here. Returns how many ranges begin
        before this byte."""
        k = bisect_right(self.starts, at - 1)
        if k and self.ends[k - 1] > at:
            wrote, reads = self.states[k - 1]
            self.starts.insert(k, at)
            self.ends.insert(k, self.ends[k - 1])
            self.states.insert(k, (wrote, dict(reads)))
            self.ends[k - 1] = at
        return k

    def touch(self, lo: int, hi: int, writes: bool, lane: int, clock: Clock, entry: Entry) -> None:
        """Record an access to bytes [lo, hi). clock: the lane's, with this access counted. Raises Race."""
        a = self._cut(lo)
        b = self._cut(hi)
        for wrote, reads in self.states[a:b]:
            if wrote is not None and clock[wrote[0]] < wrote[1]:
                raise Race(_race(entry, wrote[2], lo, hi))
            if writes:
                for other, (number, reader) in reads.items():
                    if clock[other] < number:
                        raise Race(_race(entry, reader, lo, hi))
        if writes:
            self.starts[a:b], self.ends[a:b], self.states[a:b] = [lo], [hi], [((lane, clock[lane], entry), {})]
            return
        at, k = lo, a
        while at < hi:
            if k < len(self.starts) and self.starts[k] == at:
                self.states[k][1][lane] = (clock[lane], entry)
            else:  # bytes that were not touched before
                end = min(hi, self.starts[k]) if k < len(self.starts) else hi
                self.starts.insert(k, at)
                self.ends.insert(k, end)
                self.states.insert(k, (None, {lane: (clock[lane], entry)}))
            at = self.ends[k]
            k += 1


def _race(one: Entry, other: Entry, lo: int, hi: int) -> str:
    return f"{one} and {other} may touch [{lo:#x}, {hi:#x}) at the same time"


# ---- order -----------------------------------------------------------------------------------------------------


@dataclass
class Graph:
    origin: int
    entries: list[Entry] = field(default_factory=list)


class Check:
    """The check of one trace, entry by entry. Raises Race or IllegalCapture."""

    MAIN, LOADER = 0, 1

    def __init__(self, streams: Sequence[int]) -> None:
        self.lane = {s: 2 + k for k, s in enumerate(streams)}
        self.branch = {s: 2 + len(streams) + k for k, s in enumerate(streams)}  # within graphs
        self.size = 2 + 2 * len(streams)
        # clocks[a][b]: the number up to which lane b's work has surely ended when lane a goes on
        self.clocks: list[Clock] = [[0] * self.size for _ in range(self.size)]
        self.numbers = [0] * self.size
        self.ranges = Ranges()
        self.events: dict[int, Clock | None] = {}  # None: recorded in a capture
        self.graphs: dict[int, Graph] = {}
        self.capturing: Graph | None = None
        self.works = 0

    def run(self, trace: Iterable[Entry]) -> Check:
        for e in trace:
            self.take(e)
        return self

    def take(self, e: Entry) -> None:
        if e.kind == "begin capture":
            self.capturing = Graph(e.stream)
        elif e.kind == "end capture":
            graph, self.capturing = self.capturing, None
            assert graph is not None and graph.origin == e.stream
            self.graphs[e.event] = graph
            self.walk(graph, [0] * self.size, touch=False)
            self.events.update((x.event, None) for x in graph.entries if x.kind == "record")
        elif self.capturing is not None:
            self.capturing.entries.append(e)
        elif e.kind in ("main", "loader"):
            lane = self.MAIN if e.kind == "main" else self.LOADER
            self.number(lane, self.clocks[lane])
            self.touch(e, lane, self.clocks[lane])
        elif e.kind == "step":
            join(self.clocks[self.MAIN], self.clocks[self.LOADER])
        elif e.kind == "beside":
            join(self.clocks[self.LOADER], self.clocks[self.MAIN])
        elif e.kind == "synchronize":
            join(self.clocks[self.MAIN], self.clocks[self.lane[e.stream]])
        elif e.kind == "reach":
            behind = self.events.get(e.event)
            if behind is None:
                raise IllegalCapture(f"{e}: never recorded, or recorded in a capture and not for the host")
            join(self.clocks[self.MAIN], behind)
        elif e.kind not in ("run", "ended"):
            self.enqueue(e)

    def enqueue(self, e: Entry) -> None:
        lane = self.lane[e.stream]
        mine = self.clocks[lane]
        join(mine, self.clocks[self.MAIN])  # nothing begins before it is enqueued
        if e.kind == "replay":
            graph = self.graphs[e.event]
            if graph.origin != e.stream:
                # Two replays on two streams may run at once: their branches would not be in order by themselves.
                raise IllegalCapture(f"{e}: a graph captured on stream {graph.origin} is replayed on another")
            self.clocks[lane] = self.walk(graph, mine, touch=True)
            return
        self.number(lane, mine)
        if e.kind in ("record", "tell"):
            self.events[e.event] = list(mine)
        elif e.kind == "wait":
            behind = self.events.get(e.event)
            if behind is None:
                raise IllegalCapture(f"{e}: never recorded, or recorded in a capture")
            join(mine, behind)
        else:
            self.touch(e, lane, mine)

    def walk(self, graph: Graph, start: Clock, touch: bool) -> Clock:
        """Follow one replay that begins when the work in `start` has ended. Returns the clock at its end.

        touch: also record its accesses; else only its order is checked."""
        origin = graph.origin
        clocks: dict[int, Clock] = {origin: list(start)}
        events: dict[int, Clock] = {}
        last: dict[int, int] = {}
        for e in graph.entries:
            if e.kind == "wait":
                if e.event not in events:
                    raise IllegalCapture(f"{e}: its event is not recorded before it in this capture")
                if e.stream not in clocks:  # takes part from here on
                    clocks[e.stream] = list(start)
                join(clocks[e.stream], events[e.event])
            elif e.stream not in clocks:
                raise IllegalCapture(f"{e}: its stream takes no part in the capture")
            lane = self.lane[origin] if e.stream == origin else self.branch[e.stream]
            mine = clocks[e.stream]
            self.number(lane, mine)
            last[e.stream] = mine[lane]
            if e.kind == "record":
                events[e.event] = list(mine)
            elif e.kind == "tell" and touch:
                self.events[e.event] = list(mine)
            elif touch and e.kind == "work":
                self.touch(e, lane, mine)
        for stream, number in last.items():
            if stream != origin and clocks[origin][self.branch[stream]] < number:
                raise IllegalCapture(f"stream {stream} is not joined back when the capture ends")
        return clocks[origin]

    def number(self, lane: int, clock: Clock) -> None:
        self.numbers[lane] += 1
        clock[lane] = self.numbers[lane]

    def touch(self, e: Entry, lane: int, clock: Clock) -> None:
        self.works += 1
        for lo, hi, writes in e.accesses:
            if lo < hi:
                self.ranges.touch(lo, hi, writes, lane, clock, e)


def join(mine: Clock, other: Clock) -> None:
    mine[:] = map(max, mine, other)


# ---- captured steps with mutations -----------------------------------------------------------------------------


def iteration(graph: Sequence[Entry], origin: int, life: Sequence[Entry]) -> list[Entry]:
    """A trace of two replays of a captured step, as a machine runs them. life: the host's accesses during and after."""
    loads = [e for e in life if e.kind == "loader"]
    reads = [e for e in life if e.kind == "main"]
    once = [Entry("step"), Entry("beside"), Entry("replay", origin, 1), *loads, Entry("synchronize", origin), *reads]
    return [Entry("begin capture", origin), *graph, Entry("end capture", origin, 1), *once, *once]


def found(trace: Iterable[Entry], streams: Sequence[int]) -> str | None:
    """The result of the check: "illegal", "race", or None if it finds no fault."""
    try:
        Check(streams).run(trace)
    except Race:
        return "race"
    except IllegalCapture:
        return "illegal"
    return None


Mutation = Callable[[list[Entry], Random], "list[Entry] | None"]


def _one(entries: Sequence[Entry], kind: str, r: Random) -> int:
    return r.choice([k for k, e in enumerate(entries) if e.kind == kind])


def _on_stream(entries: Sequence[Entry], k: int, step: int, count: int) -> int:
    """The index of the count-th entry before (step -1) or after (1) entry k on its stream; of the last if there are
    fewer."""
    at = k
    while count and 0 <= k + step < len(entries):
        k += step
        if entries[k].stream == entries[at].stream:
            at, count = k, count - 1
    return at


def _moved(entries: list[Entry], k: int, to: int) -> list[Entry] | None:
    if to == k:
        return None
    out = list(entries)
    out.insert(to, out.pop(k))
    return out


def drop_wait(entries: list[Entry], r: Random) -> list[Entry] | None:
    k = _one(entries, "wait", r)
    return entries[:k] + entries[k + 1 :]


def drop_record(entries: list[Entry], r: Random) -> list[Entry] | None:
    k = _one(entries, "record", r)
    return entries[:k] + entries[k + 1 :]


def drop_edge(entries: list[Entry], r: Random) -> list[Entry] | None:
    """Drop one of the calls of the fork, which come first, or of the join, which come last."""
    sides = sum(e.kind == "wait" and e.event == -1 for e in entries)
    k = r.choice([*range(1 + sides), *range(len(entries) - 2 * sides, len(entries))])
    return entries[:k] + entries[k + 1 :]


def delay_wait(entries: list[Entry], r: Random) -> list[Entry] | None:
    k = _one(entries, "wait", r)
    return _moved(entries, k, _on_stream(entries, k, 1, r.randint(1, 4)))


def hasten_wait(entries: list[Entry], r: Random) -> list[Entry] | None:
    k = _one(entries, "wait", r)
    return _moved(entries, k, _on_stream(entries, k, -1, r.randint(1, 4)))


def hasten_record(entries: list[Entry], r: Random) -> list[Entry] | None:
    """Move a record before the call that it should follow."""
    k = _one(entries, "record", r)
    return _moved(entries, k, _on_stream(entries, k, -1, r.randint(1, 3)))


def another_event(entries: list[Entry], r: Random) -> list[Entry] | None:
    k = _one(entries, "wait", r)
    event = r.choice([e.event for e in entries if e.kind == "record"])
    if event == entries[k].event:
        return None
    return [*entries[:k], replace(entries[k], event=event), *entries[k + 1 :]]


def another_stream(entries: list[Entry], r: Random) -> list[Entry] | None:
    k = _one(entries, "wait", r)
    stream = r.choice(sorted({e.stream for e in entries} - {entries[k].stream}))
    return [*entries[:k], replace(entries[k], stream=stream), *entries[k + 1 :]]


MUTATIONS: list[Mutation] = [
    drop_wait, drop_record, drop_edge, delay_wait, hasten_wait, hasten_record, another_event, another_stream,
]  # fmt: skip


def drops(entries: list[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    """(name, mutant) for every wait and every record dropped, one at a time."""
    for k, e in enumerate(entries):
        if e.kind in ("wait", "record"):
            yield f"drop_{e.kind}", entries[:k] + entries[k + 1 :]


@dataclass
class Tally:
    """The judge's and the check's verdicts on mutants, compared."""

    broken: Counter = field(default_factory=Counter)  # (mutation, "race" or "illegal") -> how many
    sound: Counter = field(default_factory=Counter)  # mutation -> how many
    missed: list[str] = field(default_factory=list)  # broken mutants in which the check found no fault
    cried: list[str] = field(default_factory=list)  # sound mutants in which the check found a fault
    other: list[str] = field(default_factory=list)  # mutants that are broken in another way than the check found

    def of(self, how: str) -> int:
        return sum(n for (_, h), n in self.broken.items() if h == how)

    def add(self, name: str, where: str, is_: str | None, said: str | None) -> None:
        if is_ is None:
            self.sound[name] += 1
            if said is not None:
                self.cried.append(f"{where}: {name}: {said}")
            return
        self.broken[name, is_] += 1
        if said is None:
            self.missed.append(f"{where}: {name}: {is_}")
        elif said != is_:
            self.other.append(f"{where}: {name}: {said} instead of {is_}")

    def __str__(self) -> str:
        lines = [f"{'mutation':16}{'race':>8}{'illegal':>9}{'sound':>8}"]
        for name in sorted({n for n, _ in self.broken} | set(self.sound)):
            counts = self.broken[name, "race"], self.broken[name, "illegal"], self.sound[name]
            lines.append("{:16}{:8}{:9}{:8}".format(name, *counts))
        total = self.of("race"), self.of("illegal"), sum(self.sound.values())
        lines.append("{:16}{:8}{:9}{:8}".format("all", *total))
        missed = f"missed {len(self.missed)}, false alarms {len(self.cried)}, of the wrong kind {len(self.other)}"
        return "\n".join([*lines, missed])


@dataclass
class Subject:
    """A captured step to be mutated."""

    where: str
    graph: list[Entry]
    streams: list[int]
    origin: int
    life: list[Entry]
    judge: cuda_orders.Judge

    def tally(self, name: str, mutant: list[Entry], into: Tally) -> None:
        said = found(iteration(mutant, self.origin, self.life), self.streams)
        into.add(name, self.where, self.judge.broken(mutant), said)


def subject(where: str, life: Followed, key: tuple[str, int]) -> Subject:
    """The Subject of a captured graph, with the host's accesses in the last step that replayed it."""
    trace = life.trace
    begins = [k for k, e in enumerate(trace) if e.kind == "step"] + [len(trace)]
    (a, b) = next(
        (a, b)
        for a, b in reversed(list(pairwise(begins)))
        if any(e.kind == "replay" and e.event == life.graph_of[key] for e in trace[a:b])
    )
    started = next(k for k in range(a, b) if trace[k].kind == "run")
    host = [e for e in trace[started:b] if e.kind in ("main", "loader")]
    m, graph = life.life.machine, life.graphs[key]
    origin = m.runtime.streams["compute"]
    judge = cuda_orders.Judge(graph, origin, [e for e in host if e.kind == "loader"])
    return Subject(where, graph, list(m.runtime.streams.values()), origin, host, judge)


def hunt(subjects: Sequence[Subject], count: int, seed: int = 2016) -> Tally:
    """Check every wait and record dropped, then random mutations, until there are `count` mutants."""
    tally, r, made = Tally(), Random(seed), 0
    for s in subjects:
        for name, mutant in drops(s.graph):
            s.tally(name, mutant, tally)
            made += 1
    while made < count:
        s, mutation = r.choice(subjects), r.choice(MUTATIONS)
        mutant = mutation(s.graph, r)
        if mutant is not None:
            s.tally(mutation.__name__, mutant, tally)
            made += 1
    return tally


# ---- nets ------------------------------------------------------------------------------------------------------

REAL = ["resnet50", "googlenet"]
SOLVER = TrainSpec(SGD(momentum=0.9, weight_decay=5e-4), seed=1)


@cache
def lowered(net: str, phases: Sequence[str], early: bool = False) -> tuple[Program, ...]:
    """The programs of a net in tests/support/nets, or else in models/ at batch 2."""
    file = NET_FILES / f"{net}.yaml"
    found = load(file) if file.exists() else understand(net, batch=2)[0]
    return tuple(programs(found, SOLVER, phases, fuses=as_cuda, double_buffered=early).values())


def arranged(
    net: str,
    policy: str,
    device: CudaDevice,
    phases: Sequence[str] = ("TRAIN",),
    early: bool = False,
    staging: Staging | None = None,
) -> Arrangement:
    """The net's arrangement. vdnn_dyn and best get a budget between vdnn_all's and liveness's arenas: they offload."""
    made, costs, budget = lowered(net, phases, early), replace(estimate(device), staging=staging), None
    if policy in ("vdnn_dyn", "best"):
        budget = sum(arrange(made, p, costs, proof=False).arena for p in ("vdnn_all:m", "liveness:p")) // 2
    return arrange(made, policy, costs, budget)


def check_life(life: Followed) -> Check:
    return Check(list(life.life.machine.runtime.streams.values())).run(life.trace)


def report(name: str, policy: str, life: Followed, seconds: float) -> str:
    checked = check_life(life)
    m = life.life.machine
    waits = sum(e.kind == "wait" for g in life.graphs.values() for e in g)
    return (
        f"{name} {policy}: arena {text(m.arrangement.arena)}, {len(life.graphs)} graphs of "
        f"{life.counts['captured calls']} calls ({waits} of them waits); in order: {checked.works} works and accesses "
        f"by the host in a trace of {len(life.trace)} entries; {seconds:.1f} s"
    )


def subjects_of(nets: Sequence[str] = SMALL_NETS, policies: Sequence[str] = FEW) -> list[Subject]:
    made = []
    for name in nets:
        for policy in policies:
            device = recording_device()
            with lived(arranged(name, policy, device), device) as life:
                check_life(life)
                made += [subject(f"{name} {policy} {key}", life, key) for key in life.graphs]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=0)
    parser.add_argument("--seed", type=int, default=2016)
    parser.add_argument("--of", nargs="+", metavar="NET", help="of tests/support/nets or models/")
    parser.add_argument("--policies", nargs="+", default=FEW, metavar="POLICY")
    parser.add_argument("--nets", action="store_true")
    parser.add_argument("--card", help="with --nets: real cuDNN's plans for this card of tests/support/cuda/gpus.yaml")
    options = parser.parse_args()
    start = perf_counter()
    if options.mutants:
        tally = hunt(subjects_of(options.of or SMALL_NETS, options.policies), options.mutants, options.seed)
        print(tally, f"\n{perf_counter() - start:.1f} s")
        for line in (*tally.missed, *tally.cried, *tally.other):
            print(line)
        if tally.missed or tally.cried or tally.other:
            raise SystemExit(1)
    if options.nets:
        plans = None
        if options.card:
            from tests.support.cuda import plans as cuda_plans  # needs the frontend

            plans = cuda_plans.library(options.card).plans
        for name in options.of or REAL:
            for policy in options.policies:
                start, device = perf_counter(), recording_device(plans=plans)
                with lived(arranged(name, policy, device, ("TRAIN", "TEST")), device) as life:
                    print(report(name, policy, life, perf_counter() - start), flush=True)


if __name__ == "__main__":
    main()
