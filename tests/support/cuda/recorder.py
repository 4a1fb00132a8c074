"""A trace of all calls of CUDA in a machine's whole life, and its comparison with the machine's schedules.

`Recorder` is a CUDA that computes nothing. It refuses calls that CUDA refuses (tests/support/cuda/fake.py) and keeps a
trace. `Life` is a real machine on it; the host threads' own accesses to page-locked memory are in the trace, too.
`follow` compares the calls of one step with its schedule, one by one, and notes the bytes that each call reads and
writes. It computes addresses from schedule.offset and the recipes' pointers, not from the addresses that were bound.

This needs neither a GPU nor g++.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from minidnn.backends.cuda.device import CudaDevice
from minidnn.backends.cuda.recipe import Execute, Launch, Pointer, Read, Recipe, Space, Write
from minidnn.backends.cuda.runtime import SIDES
from minidnn.memory.execution.machine import Machine
from minidnn.memory.execution.threads import page_aligned
from minidnn.memory.schedule import (
    STREAMS,
    Arrangement,
    Buffer,
    Compute,
    Fetch,
    Free,
    Offload,
    Prefetch,
    Residency,
    Schedule,
    Stash,
    Wait,
    aligned,
    stored_bound,
)
from minidnn.program import Tensor
from minidnn.ranks.engine import Engine
from tests.support.cuda.fake import FakeApi, FakeCudnn
from tests.support.cuda.fake import Machine as GPUs

TOLD = -9  # the event of the host, among those that are not the schedule's
Access = tuple[int, int, bool]  # bytes [lo, hi) of device or host, which share one address space; whether it writes
Happening = Literal[
    "work", "record", "wait",  # on a stream
    "tell", "reach",  # a record for the host, on a stream; the host's main thread waits for that, or for a record
    "begin capture", "end capture", "replay",
    "synchronize",  # the host's main thread waits for a stream
    "main", "loader",  # a host thread's own access to memory; the loader runs during a step
    "step", "beside",  # the main thread waits for the loader; the loader may write the next batch
    "run", "ended",  # the beginning and the end of a call of the runtime
]  # fmt: skip


@dataclass(eq=False, slots=True)
class Entry:
    """One line of the trace. `index`: the schedule's instruction. `what`: the arguments of the call of CUDA."""

    kind: Happening
    stream: int = 0
    event: int = 0
    index: int | None = None
    what: tuple = ()
    accesses: tuple[Access, ...] = ()


class Unfaithful(AssertionError):
    """The calls of CUDA are not those that the schedule says."""


class _Names(dict):
    def __missing__(self, name: str) -> str:
        return name


class Recorder(FakeApi):
    def __init__(self, memory: int = 1 << 40, machine: GPUs | None = None) -> None:
        super().__init__(memory, machine=machine)
        self.trace: list[Entry] = []
        self.beside: Any = None  # stands for other threads: called once, when all of a step is enqueued

    def note(self, kind: Happening, stream: int = 0, event: int = 0, **more: Any) -> None:
        self.trace.append(Entry(kind, stream, event, self.index, **more))

    def work(self, stream: int, what: tuple, *accesses: Access) -> None:
        self.enqueue(stream, None, what[0])
        self.note("work", stream, what=what, accesses=accesses)

    # Memory is not filled with a pattern and nothing is computed, unlike in FakeApi, since real nets' arenas are large.

    def allocate(self, nbytes: int) -> int:
        raw = np.empty(nbytes + 4096, np.uint8)
        address = raw.ctypes.data + -raw.ctypes.data % 4096
        self.allocated[address] = raw
        return address

    def allocate_host(self, nbytes: int) -> np.ndarray:
        array = page_aligned(nbytes)
        array.fill(0)
        return array

    def _finish(self, wanted: Iterable[Any]) -> None:
        for work in self.pending:
            work.done = True
        self.pending.clear()
        self.machine.ready.clear()
        self.last.clear()
        self.log.clear()

    def copy(self, to: int, source: int, nbytes: int, direction: str, stream: int) -> None:
        if self.index is None and direction == "out":
            ctypes.memset(to, 0, nbytes)  # the machine looks at values that it reads between steps
        ends = (source, source + nbytes, False), (to, to + nbytes, True)
        self.work(stream, ("copy", direction, to, source, nbytes), *ends)

    def communicate(self, stream: int, group: Any) -> None:
        self.work(stream, ("group", group.moves))

    def fill(self, address: int, value: int, nbytes: int, stream: int) -> None:
        self.work(stream, ("fill", value, address, nbytes), (address, address + nbytes, True))

    def functions(self, source: str, storage: str = "float") -> Any:
        return _Names()

    def bind(
        self, function: Any, arguments: Sequence[np.generic], grid: int, block: int, shared: int, stream: int
    ) -> Any:
        typed = tuple((a.dtype.char, a.item()) for a in arguments)
        return partial(self.work, stream, ("launch", function, typed, grid, block, shared))

    def host(self, call: Any, stream: int) -> Any:
        (made,) = call.args  # the machine's call, within the runtime's
        ends = ((_address(a), a.nbytes) for a in made.args if isinstance(a, np.ndarray))
        return partial(self.work, stream, ("host", made.func.__name__, *ends))

    def record(self, event: int, stream: int) -> None:
        super().record(event, stream)
        self.note("record", stream, event, what=("timed",) if self.events[event].timed else ())

    def wait(self, stream: int, event: int) -> None:
        super().wait(stream, event)
        self.note("wait", stream, event)

    def tell(self, event: int, stream: int) -> None:
        super().tell(event, stream)
        self.note("tell", stream, event)

    def reach(self, event: int) -> None:
        super().reach(event)
        self.note("reach", event=event)

    def synchronize(self, stream: int) -> None:
        if self.beside is not None:
            beside, self.beside = self.beside, None
            beside()
        super().synchronize(stream)
        self.note("synchronize", stream)

    def begin_capture(self, stream: int) -> None:
        super().begin_capture(stream)
        self.note("begin capture", stream)

    def end_capture(self, stream: int) -> int:
        graph = super().end_capture(stream)
        self.note("end capture", stream, graph)
        return graph

    def replay(self, graph: int, stream: int) -> None:
        super().replay(graph, stream)
        self.note("replay", stream, graph)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


class RecordingCudnn(FakeCudnn):
    def execute(self, plan: Any, pack: dict[int, int], workspace: int) -> None:
        self.api.work(self.stream, ("execute", plan, tuple(sorted(pack.items())), workspace))


def ran(*tensors: np.ndarray) -> None:
    """Stands for an op that the host runs."""


def recording_device(
    memory: int = 1 << 40, graphs: bool = True, plans: Any = None, machine: GPUs | None = None
) -> CudaDevice:
    """A device on a Recorder. plans: the function problem -> plans of a real cuDNN, instead of made-up plans."""
    api = Recorder(memory, machine)
    cudnn = RecordingCudnn(api)
    cudnn.plans = plans or cudnn.plans  # type: ignore[method-assign]
    device = CudaDevice(api, cudnn, "a CUDA that only writes down", graphs)  # type: ignore[arg-type]
    device.nan.keeps = lambda plan: True  # type: ignore[method-assign]  # nothing is computed here
    device.prepare_by_host = lambda op, _, arrays: partial(ran, *map(arrays.get, op.tensors))  # type: ignore
    return device


# ---- a machine's life ------------------------------------------------------------------------------------------


class Life:
    """A machine that runs steps as in training, with its trace."""

    def __init__(
        self, device: CudaDevice, arrangement: Arrangement, debug: bool = False, engine: Engine | None = None
    ) -> None:
        self.api: Recorder = device.api  # type: ignore[assignment]
        self.machine = m = Machine(device, arrangement, debug, engine=engine)
        for loaded in m.loaded.values():
            for prepared in loaded.bound.values():
                prepared.calls = [(i, s, partial(self._tagged, i, call)) for i, s, call in prepared.calls]
        self._thread: Literal["main", "loader"] = "main"
        self._host = m.binder.on_host
        m.binder.on_host = self._noted_host  # type: ignore[method-assign]
        for run in ("run", "run_timed", "launch"):
            setattr(m.runtime, run, partial(self._noted_run, getattr(m.runtime, run)))
        self._turning = self._writing = False

    def _tagged(self, index: int, call: Any) -> None:
        self.api.index = index
        call()
        self.api.index = None

    def _noted_host(self, loaded: Any, t: Any, place: int = 0) -> np.ndarray:
        """Stands in for `Binder.on_host`, which the machine calls before it touches the host's memory itself."""
        array = self._host(loaded, t, place)
        lo = array.__array_interface__["data"][0]
        writes = self._writing or (self._turning and place != loaded.place)
        self.api.note(self._thread, accesses=((lo, lo + array.nbytes, writes),))
        return array

    def _noted_run(self, run: Any, *args: Any, **more: Any) -> Any:
        self._turning = False
        self.api.note("run")
        result = run(*args, **more)
        self.api.note("ended")
        return result

    def write(self, program: str, but: int = 0) -> None:
        """The loader writes a batch, without its first `but` inputs."""
        self._thread, self._writing = "loader", True
        for t in self.machine.loaded[program].schedule.program.inputs[but:]:
            self.machine.write(t, np.zeros(t.shape, t.dtype), program)
        self._thread, self._writing = "main", False

    def step(self, program: str, next_program: str, but: int = 0, mode: str = "") -> None:
        """Run a step, during which the loader writes the next batch, and read its outputs at the end.

        mode: "trace" or "check" as for `Machine.step`; "ahead" launches the step and reads its outputs as soon as they
        are there."""
        self.api.note("step", what=(program, mode))
        self._turning = True
        write = partial(self.write, next_program, but)

        def beside() -> None:
            self.api.note("beside")
            if mode == "ahead":
                write()  # only its order relative to other work counts, not its position in the trace
            else:
                self.api.beside = write

        if mode == "ahead":
            self.machine.launch(program, beside)
        else:
            self.machine.step(program, meanwhile=beside, **({mode: True} if mode else {}))
        for t in self.machine.loaded[program].schedule.program.outputs:
            self.machine.read(t, program)


def live(
    device: CudaDevice,
    arrangement: Arrangement,
    rounds: int = 4,
    debug: bool = False,
    ahead: bool = False,
    engine: Engine | None = None,
) -> Life:
    """A life with every kind of step. Parameters are set first, and read and set again between two steps.

    The programs run in turn, from both places of their inputs: first call by call, then as graphs. Some steps in
    between are timed or checked. One batch is written only in part.

    ahead:  steps that are neither timed nor checked are launched while the step before runs
    engine: of one rank of several, whose programs have one step in an iteration"""
    life = Life(device, arrangement, debug, engine)
    m, names = life.machine, list(arrangement.schedules)
    touched = list(m.persistent)[:4]
    for t in touched:
        m.set(t, np.zeros(t.shape, t.dtype))
    for name in names:
        life.write(name)
    turns = names * (rounds + 4)
    modes = dict.fromkeys(range(2 * len(names), 3 * len(names)), "trace")
    modes |= dict.fromkeys(range(5 * len(names), 6 * len(names)), "check")
    for k, name in enumerate(turns):
        life.step(name, turns[(k + 1) % len(turns)], int(k == rounds), modes.get(k, "ahead" if ahead else ""))
        if k == 2:
            for t in touched:
                m.set(t, m.get(t))
    for t in touched:
        m.get(t)
    return life


# ---- the calls that a schedule demands -------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """The addresses of a program's bytes."""

    arena: int  # its address
    host: int  # the address of the host's page-locked bytes
    base: int  # offset of the program's bytes on the host
    ring: int  # the address of the ring
    store: int  # the address of the ordinary memory behind it
    # which of the two places of inputs the step reads, on the device if they are double-buffered, else on the host
    turn: int


class Said:
    """The entries that one step of a schedule must enqueue. An event's number is the instruction that records it."""

    def __init__(
        self, schedule: Schedule, device: CudaDevice, place: Place, debug: bool = False, rank: int = 0
    ) -> None:
        self.s, self.device, self.place, self.rank = schedule, device, place, rank
        self.inputs = set(schedule.program.inputs)
        self.awaited = {x.on for x in schedule.instructions if isinstance(x, Wait)}
        outputs = [
            i for i, x in enumerate(schedule.instructions) if isinstance(x, Offload) and self.leaves(x.residency)
        ]
        self.entries: list[Entry] = []
        for i, x in enumerate(schedule.instructions):
            if isinstance(x, Wait):
                self.add("wait", x.stream, i, event=x.on)
            elif isinstance(x, Compute) and x.stream == "net":
                self.add("work", "net", i, **self.communicated(x))
            elif isinstance(x, Compute) and x.stream == "host":
                self.add("work", "host", i, **self.by_host(x))
            elif isinstance(x, Compute):
                for what, accesses in self.computed(x):
                    self.add("work", "compute", i, what=what, accesses=accesses)
            elif isinstance(x, (Offload, Prefetch)):
                device_at, n = self.at(x.residency), x.residency.tensor.nbytes
                host_at = self.host_at(x.residency.tensor) if x.staging_slot is None else place.ring + x.staging_slot.at
                there, to, source = (
                    ("out", host_at, device_at) if isinstance(x, Offload) else ("in", device_at, host_at)
                )
                ends = (source, source + n, False), (to, to + n, True)
                self.add("work", there, i, what=("copy", there, to, source, n), accesses=ends)
            elif isinstance(x, (Stash, Fetch)):
                self.add("work", x.stream, i, **self.stored(x))
            elif isinstance(x, Free) and debug and self.poisonable(i, x.buffer):
                lo = place.arena + schedule.offset[x.buffer]
                what = ("fill", 0xFF, lo, x.buffer.nbytes)
                self.add("work", "compute", i, what=what, accesses=((lo, lo + x.buffer.nbytes, True),))
            if i in self.awaited:
                assert isinstance(x, Compute | Offload | Prefetch | Stash | Fetch), f"{i} is awaited and does nothing"
                self.add("record", x.stream, i, event=i)
            if outputs[-1:] == [i]:
                self.add("tell", "out", i, event=TOLD)

    def leaves(self, residency: Residency) -> bool:
        return residency.tensor in self.s.program.outputs

    def add(self, kind: Happening, stream: str, index: int, event: int = 0, **more: Any) -> None:
        self.entries.append(Entry(kind, stream, event, index, **more))  # type: ignore[arg-type]

    def at(self, residency: Residency) -> int:
        t = residency.tensor
        turn = self.place.turn * aligned(t.nbytes) if t in self.s.program.double_buffered else 0
        return self.place.arena + self.s.offset[residency.buffer] + turn

    def by_host(self, x: Compute) -> dict[str, Any]:
        """The call of an op that the host runs, and the bytes that it touches."""
        places = {t: (self.host_at(t), t.nbytes) for t in x.op.tensors}
        return dict(
            what=("host", "ran", *places.values()),
            accesses=tuple((at, at + n, t in x.op.writes) for t, (at, n) in places.items()),
        )

    def stored(self, x: Stash | Fetch) -> dict[str, Any]:
        """The call of the host between the ring and the store, and the bytes that it touches."""
        t, packed = x.staging_slot.tensor, self.s.staging.compress
        ring = self.place.ring + x.staging_slot.at, t.nbytes
        store = self.place.store + self.s.store_offset[t], stored_bound(t, packed)
        source, to = (ring, store) if isinstance(x, Stash) else (store, ring)
        name = "copyto" if not packed else "compress" if isinstance(x, Stash) else "decompress"
        ends = (source, to) if packed else (to, source)
        return dict(
            what=("host", name, *ends),
            accesses=((source[0], sum(source), False), (to[0], sum(to), True)),
        )

    def host_at(self, t: Tensor) -> int:
        turn = self.place.turn * aligned(t.nbytes) if t in self.inputs else 0
        base = 0 if t in self.s.program.host_resident else self.place.base
        return self.place.host + base + self.s.host_offset[t] + turn

    def poisonable(self, i: int, freed: Buffer) -> bool:
        """Whether freed bytes may be poisoned: not if a copy or a communication that writes to them does not come after
        a later op, because it would not wait for the poison."""
        lo, hi = self.s.offset[freed], self.s.offset[freed] + freed.nbytes
        for k, op in self.ops_before.items():
            x = self.s.instructions[k]
            for residency in (x.residency,) if isinstance(x, Prefetch) else x.writes:
                at = self.s.offset[residency.buffer]
                if k > i > op and max(at, lo) < min(at + residency.tensor.nbytes, hi):
                    return False
        return True

    @cached_property
    def ops_before(self) -> dict[int, int]:
        """{each copy back or communication: the last op that it comes after}"""
        now, after, found = dict.fromkeys(STREAMS, -1), {}, {}
        for k, x in enumerate(self.s.instructions):
            if isinstance(x, Wait):
                now[x.stream] = max(now[x.stream], after[x.on])
            elif isinstance(x, Compute) and x.stream == "compute":
                now["compute"] = after[k] = k
            elif isinstance(x, (Offload, Prefetch, Compute, Stash, Fetch)):
                after[k] = now[x.stream]
                if isinstance(x, (Prefetch, Compute)):
                    found[k] = now[x.stream]
        return found

    def communicated(self, x: Compute) -> dict[str, Any]:
        """The one call of a communication. It accesses all of each tensor that it reads or writes."""
        ranks, all_to_all = x.op.attrs.ranks, x.op.kind == "net.all_to_all"
        sends: list[tuple] = []
        receives: list[tuple] = []
        for k in range(ranks):
            for read, write in zip(x.reads, x.writes, strict=True):
                size = read.tensor.itemsize
                whole, rows = (read, write) if all_to_all else (write, read)
                each = rows.tensor.size // ranks if all_to_all else rows.tensor.size
                n = whole.tensor.size
                lo, hi = (min(n, r * each) for r in (k, k + 1))
                mine = min(n, (self.rank + 1) * each) - min(n, self.rank * each)
                if all_to_all:
                    out, into = (self.at(whole) + lo * size, hi - lo), (self.at(rows) + k * each * size, mine)
                else:
                    out, into = (self.at(rows), mine), (self.at(whole) + lo * size, hi - lo)
                sends += [("send", out[0], out[1] * size, k)] if out[1] else []
                receives += [("recv", into[0], into[1] * size, k)] if into[1] else []
        touched = [(s, False) for s in x.reads] + [(s, True) for s in x.writes]
        accesses = tuple((self.at(s), self.at(s) + s.tensor.nbytes, writes) for s, writes in touched)
        return {"what": ("group", (*sends, *receives)), "accesses": accesses}

    def computed(self, x: Compute) -> Iterator[tuple[tuple, tuple[Access, ...]]]:
        """(call, accesses) of each work of an op. A work accesses all of each tensor that it gets a pointer to."""
        recipe = self.recipe(x)
        space = self.at(x.workspace) if x.workspace else self.place.arena  # any address: it has no bytes
        room = x.workspace.tensor.nbytes if x.workspace else 0
        if room != recipe.algorithm.workspace:
            raise Unfaithful(f"{x.op.name}: a workspace of {room} B for {recipe.algorithm}")
        named: set[tuple[type, int]] = set()

        def address(p: Pointer) -> int:
            if isinstance(p, Space):
                return space + p.offset
            return self.at((x.reads if isinstance(p, Read) else x.writes)[p.index]) + p.offset

        def reached(pointers: Sequence[Pointer]) -> tuple[Access, ...]:
            found = []
            for p in pointers:
                if isinstance(p, Space):
                    if p.offset < 0 or p.offset + p.nbytes > room:
                        raise Unfaithful(f"{x.op.name}: {p} is outside the workspace of {room} B")
                    if p.nbytes:
                        found.append((address(p), address(p) + p.nbytes, True))
                else:
                    named.add((type(p), p.index))
                    residency = (x.reads if isinstance(p, Read) else x.writes)[p.index]
                    found.append(
                        (self.at(residency), self.at(residency) + residency.tensor.nbytes, isinstance(p, Write))
                    )
            return tuple(dict.fromkeys(found))

        for step in recipe.steps:
            if isinstance(step, Launch):
                typed = tuple((a.dtype.char, a.item()) for a in step.values(address))
                accesses = reached(step.pointers)
                if not step.copies_in_place(address):
                    yield ("launch", step.kernel, typed, step.grid, step.block, step.shared), accesses
            else:
                if step.plan.workspace > step.workspace.nbytes:
                    raise Unfaithful(f"{x.op.name}: {step.plan.name} is given {step.workspace.nbytes} B of workspace")
                pack = tuple(sorted((uid, address(p)) for uid, p in step.pack))
                pointers = [p for _, p in step.pack]
                yield ("execute", step.plan, pack, address(step.workspace)), reached([*pointers, step.workspace])
        whole = {(Read, k) for k in range(len(x.reads))} | {(Write, k) for k in range(len(x.writes))}
        same = {(Read, k) for k, s in enumerate(x.reads) if any(s.tensor is w.tensor for w in x.writes)}
        if x.op.kind in ("gradient.merge", "objective.sum"):
            same.add((Read, 1))  # what was sent only stays until that has ended
        if whole - same - named:
            raise Unfaithful(f"{x.op.name}: no launch is given {whole - same - named}")

    def recipe(self, x: Compute) -> Recipe:
        """The recipe of the algorithm that the plan chose."""
        found = [r for r in self.device.recipes(x.op) if r.algorithm == x.algorithm == self.s.plan.algorithm[x.op]]
        if len(found) != 1:
            raise Unfaithful(f"{x.op.name}: {len(found)} recipes for {x.algorithm}")
        assert all(isinstance(step, Launch | Execute) for step in found[0].steps)
        return found[0]


def captured(said: Said) -> list[Entry]:
    """The entries between the fork and the join of a run. Events below zero are not the schedule's."""
    used = {e.stream for e in said.entries}
    sides = [side for side in SIDES if side in used]
    fork = [Entry("record", "compute", -1), *(Entry("wait", side, -1) for side in sides)]  # type: ignore[arg-type]
    join = [
        e
        for k, side in enumerate(sides)
        for e in (Entry("record", side, -2 - k), Entry("wait", "compute", -2 - k))  # type: ignore[arg-type]
    ]
    return [*fork, *said.entries, *join]


def follow(done: Sequence[Entry], said: Sequence[Entry], streams: dict[str, int]) -> None:
    """Compare the calls `done` with those in `said`, one by one, and note in `done` the bytes that kernels touch.

    Raises Unfaithful if they differ."""
    event_of: dict[int, int] = {}
    for k, (got, want) in enumerate(zip(done, said, strict=False)):
        stream = streams[want.stream]  # type: ignore[index]
        if (got.kind, got.stream, got.index, got.what) != (want.kind, stream, want.index, want.what):
            raise Unfaithful(f"call {k}: {got}, but the schedule says {want}")
        if want.kind != "work" and event_of.setdefault(want.event, got.event) != got.event:
            raise Unfaithful(f"call {k}: {got} is of another event than {want}")
        if got.accesses and got.accesses != want.accesses:
            raise Unfaithful(f"call {k}: {got} touches other bytes than {want}")
        got.accesses = want.accesses
    if len(done) != len(said):
        raise Unfaithful(f"{len(done)} calls, the schedule says {len(said)}")
    if len(set(event_of.values())) != len(event_of):
        raise Unfaithful("one event stands for two instructions")


@dataclass
class Followed:
    """A life that agrees with its schedules. Keys are (program, place of inputs)."""

    life: Life
    said: dict[tuple[str, int], Said]
    graphs: dict[tuple[str, int], list[Entry]]  # the calls of each captured step
    graph_of: dict[tuple[str, int], int]  # the number of each captured graph
    counts: Counter

    @property
    def trace(self) -> list[Entry]:
        return self.life.api.trace


def followed(life: Life) -> Followed:
    """Compare all calls of a life's steps with its schedules. Raises Unfaithful if they differ.

    A program's steps read the two places of its inputs in turn. Programs with double-buffered inputs share those. The
    first step from each place runs call by call, the next is captured, and all further ones are replays of that graph.
    Timed and checked steps are neither captured nor replayed."""
    m, counts, graphs = life.machine, Counter(), {}
    streams, trace = m.runtime.streams, life.api.trace
    rank = m.engine.rank if m.engine else 0
    arena, host, a = m.runtime.arena.address, _address(m.runtime.host), m.arrangement
    behind = host + a.host - a.ring, _address(m.binder.store)
    said = {
        (name, turn): Said(
            loaded.schedule, m.device, Place(arena, host, loaded.host_base, *behind, turn), m.debug, rank
        )
        for name, loaded in m.loaded.items()
        for turn in range(len(loaded.bound))
    }
    steps, graph_of, ran = Counter(), {}, set()
    for name, mode, part in _steps(trace):
        turns = "early" if m.loaded[name].schedule.program.double_buffered else name
        steps[turns] += 1
        key = name, steps[turns] % len(m.loaded[name].bound)
        where = f"step {steps[turns]} of {turns}"
        if mode == "trace":
            part = [e for e in part if e.what != ("timed",)]
            follow(part, captured(said[key])[1:], streams)
            counts["timed calls"] += len(part)
            continue
        if mode == "check":
            part = [e for e in part if e.index is not None]  # reads in between are no calls of the schedule
            follow(part, said[key].entries, streams)
            counts["checked calls"] += len(part)
            continue
        *part, last = part
        if (last.kind, last.stream, last.index) != ("record", streams["compute"], None):
            raise Unfaithful(f"{where} does not end with a record of its end: {last}")
        if key not in ran or not m.runtime.graphs:
            ran.add(key)
            follow(part, captured(said[key]), streams)
            counts["eager calls"] += len(part)
        else:
            if key not in graphs:
                ends = [k for k, e in enumerate(part) if e.kind == "end capture"]
                if part[0].kind != "begin capture" or part[0].stream != streams["compute"] or len(ends) != 1:
                    raise Unfaithful(f"{where} is not captured")
                graphs[key], graph_of[key] = part[1 : ends[0]], part[ends[0]].event
                follow(graphs[key], captured(said[key]), streams)
                counts["captured calls"] += len(graphs[key])
                part = part[ends[0] + 1 :]
            if [(e.kind, e.stream, e.event) for e in part] != [("replay", streams["compute"], graph_of[key])]:
                raise Unfaithful(f"{where} is not one replay of its graph: {part}")
            counts["replays"] += 1
    return Followed(life, said, graphs, graph_of, counts)


def _steps(trace: Sequence[Entry]) -> Iterator[tuple[str, str, list[Entry]]]:
    """(program, mode, its calls of CUDA) of each step in the trace."""
    step, part = None, None
    for e in trace:
        if e.kind == "step":
            step = e.what
        elif e.kind == "run" and step:
            part = []
        elif e.kind == "ended" and step:
            yield *step, part
            step, part = None, None
        elif part is not None and e.kind not in ("main", "loader", "beside", "run", "synchronize", "reach"):
            part.append(e)


@contextmanager
def lived(arrangement: Arrangement, device: CudaDevice, **options: Any) -> Iterator[Followed]:
    life = live(device, arrangement, **options)
    try:
        yield followed(life)
    finally:
        life.api.beside = None
        life.machine.close()
