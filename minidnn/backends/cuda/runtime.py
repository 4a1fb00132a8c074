"""A GPU's runtime (memory/execution/runtime.py): its streams, an arena, and page-locked memory of the host.

A schedule's calls are enqueued in its order. Between them there are events only for the schedule's waits, and one for
the host after the outputs. The first run of a step is not captured, because libraries load some parts at first use.
From the second run on, the step is replayed as one captured graph, copies included. Timed and checked runs are never
captured.

Communications between ranks are enqueued by their engine (ranks/nccl.py), on the stream "net". If a rank is lost, the
bytes of this one are worth nothing, and the runtime counts as broken.

The streams that the host runs are streams of CUDA, too. Their calls are functions that CUDA calls on the host, on a
thread of its own. In a captured graph they are nodes, so that a replay waits for the host as it waits for copies. If
such a call fails, the host does nothing more in that run. The error is raised where the run is waited for.

The copies of double-buffered inputs are never captured. They have a stream of their own, "land", on which the next
step's batch comes while this step runs. An event holds the compute stream until they have ended.

Captured or not, a run begins and ends on the compute stream. So if a run is launched while another is in flight, the
GPU begins it when the other has ended, without the host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np

from minidnn.backends.cuda.api import Api, Direction
from minidnn.memory.execution.device import KernelFailed
from minidnn.memory.execution.runtime import BoundCall, Call, Runtime, Timed
from minidnn.memory.schedule import BY_HOST, STREAMS, Stream
from minidnn.ranks.engine import RankLost
from minidnn.sizes import text
from minidnn.spoken import either, option

SIDES = STREAMS[1:]  # all but compute
COPIES: tuple[Stream, ...] = ("out", "in")
LAND = "land"  # the stream of double-buffered inputs, which no schedule names
# CUDA takes about a thousand calls before one waits for room. Some of CuPy's and cuDNN's calls then keep Python's lock,
# which the host's calls need. So at most this many calls are enqueued behind one of the host's before it has ended.
BEHIND = 256


@dataclass(frozen=True)
class Bytes:
    """A range of the device's memory: its address and its size in bytes. It is sliced like an array of uint8."""

    address: int
    nbytes: int

    def __getitem__(self, part: slice) -> Bytes:
        start, stop, _ = part.indices(self.nbytes)
        return Bytes(self.address + start, max(stop - start, 0))


@dataclass(eq=False)
class Prepared:
    """A bound schedule. `calls`, in its order: (instruction, stream, the call that enqueues it)."""

    calls: list[tuple[int, Stream, Call]] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    outputs: int | None = None  # an event for the host, recorded after the outputs
    sides: tuple[Stream, ...] = ()  # the streams beside compute that have a call: a run begins and ends these, too
    runs: int = 0  # launches so far
    graph: int | None = None  # captured at the second launch


def _no_graph() -> str:
    return either("--no-graph", "open_device(..., graphs=False)")


class Lost(KernelFailed):
    """CUDA has failed and does nothing more in this process, where `open_gpu` returns the same device again.

    why:    what has failed
    advice: what would work in a new process"""

    def __init__(self, why: object, advice: str = "") -> None:
        super().__init__(
            f"{why}; after this error CUDA does nothing more in this process, so the GPU is lost to it: start a new "
            f"process ({_no_graph()} and compute-sanitizer show where the error came from{advice})"
        )
        self.why = str(why)


class CudaRuntime(Runtime):
    def __init__(self, api: Api, compute: int, net: int, arena: int, host: int, graphs: bool = True) -> None:
        """`compute`: the stream that the kernels are bound to; `net`: that of communications; `arena`, `host`: bytes.
        Raises MemoryError if the GPU or the host's page-locked memory does not have them."""
        self.api, self.graphs, self.broken = api, graphs, False
        api.enter()
        free = api.free_memory()
        if arena > free:
            raise MemoryError(
                f"the arena takes {arena} bytes ({text(arena)}), and {free} ({text(free)}) of the GPU are free: "
                f"close other programs that use it, or give a smaller {option('budget')}"
            )
        self.arena = Bytes(api.allocate(arena), arena)
        try:
            self.host = api.allocate_host(host)
        except BaseException:
            api.release(self.arena.address)
            raise
        self._own = (*COPIES, *BY_HOST, LAND)
        self.streams = {"compute": compute, "net": net, **{s: api.stream() for s in self._own}}
        self._prepared: list[Prepared] = []
        self._edge = api.event()  # on the compute stream, where a step begins: the side streams wait for it
        self._ends = {s: api.event() for s in SIDES}
        self._landed = api.event()  # on the stream LAND, after the latest copies
        self._over = [api.event(), api.event()]  # the ends of launches, in turn; the latest launch's is the last
        self._flight: Prepared | None = None  # the latest launch, unless it is known to have ended
        self._wrong: BaseException | None = None  # what a call of the host has raised

    # ---- binding

    def copy(self, to: Any, source: Any, stream: Stream) -> Call:
        if stream not in COPIES:
            raise ValueError(f"copies run on the streams out and in, not on {stream}")
        ends = _address(to), _address(source), to.nbytes
        return partial(self.api.copy, *ends, cast(Direction, stream), self.streams[stream])

    def landing(self, to: Bytes, source: np.ndarray) -> Call:
        return partial(self.api.copy, to.address, _address(source), to.nbytes, "in", self.streams[LAND])

    def land(self, landings: Sequence[Call]) -> None:
        with self._settled():
            for call in landings:
                call()
            self.api.record(self._landed, self.streams[LAND])
            self.api.wait(self.streams["compute"], self._landed)

    def fill(self, bytes: Bytes, value: int) -> Call:
        return partial(self.api.fill, bytes.address, value, bytes.nbytes, self.streams["compute"])

    def bind(self, bound: Sequence[BoundCall], outputs_after: int | None = None) -> Prepared:
        awaited = {on: self.api.event() for on in {b.on for b in bound if b.on is not None}}
        used = {b.stream for b in bound}
        prepared = Prepared(events=list(awaited.values()), sides=tuple(s for s in SIDES if s in used))
        for b in bound:
            stream = self.streams[b.stream]
            if b.on is not None:
                prepared.calls.append((b.index, b.stream, partial(self.api.wait, stream, awaited[b.on])))
                continue
            assert b.call is not None
            call = self.api.host(partial(self._by_host, b.call), stream) if b.stream in BY_HOST else b.call
            prepared.calls.append((b.index, b.stream, call))
            if b.index in awaited:
                record = partial(self.api.record, awaited[b.index], stream)
                prepared.calls.append((b.index, b.stream, record))
            if b.index == outputs_after:
                prepared.outputs = self.api.event()
                prepared.events.append(prepared.outputs)
                prepared.calls.append((b.index, b.stream, partial(self.api.tell, prepared.outputs, stream)))
        self._prepared.append(prepared)
        return prepared

    def _by_host(self, call: Call) -> None:
        """Make a call on CUDA's thread, where nothing can be raised."""
        if self._wrong is None:
            try:
                call()
            except BaseException as error:
                self._wrong = error

    # ---- running

    def run(self, prepared: Prepared, after: Callable[[int], object] | None = None) -> None:
        if after is None:
            self.launch(prepared)
        self.settle()
        if after is not None:
            with self._settled():
                self._run_one_by_one(prepared, after)

    def launch(self, prepared: Prepared, meanwhile: Callable[[], object] | None = None) -> None:
        with self._settled():
            if self.graphs and prepared.runs and prepared.graph is None:
                prepared.graph = self._captured(prepared)
            if prepared.graph is not None:
                self.api.replay(prepared.graph, self.streams["compute"])
            else:
                self._enqueue(prepared)
            prepared.runs += 1
            self._over.reverse()
            self.api.record(self._over[-1], self.streams["compute"])
            former, self._flight = self._flight, prepared
            if former is not None:
                self.api.reach(self._over[0])
        if meanwhile is not None:
            meanwhile()

    def wait_for_outputs(self) -> None:
        if self._flight is not None:
            with self._settled():
                outputs = self._flight.outputs
                self.api.reach(self._over[-1] if outputs is None else outputs)

    def settle(self) -> None:
        if self._flight is not None:
            with self._settled():
                self._synchronize()
            self._flight = None

    def _run_one_by_one(self, prepared: Prepared, after: Callable[[int], object]) -> None:
        for i, stream, call in self._in_order(prepared):
            call()
            if stream == "compute":
                self.api.synchronize(self.streams[stream])
                if self._wrong is not None:
                    break
                after(i)
        self._synchronize()

    def _synchronize(self) -> None:
        for stream in self.streams.values():
            self.api.synchronize(stream)

    @contextlib.contextmanager
    def _settled(self) -> Iterator[None]:
        """A context for calls to CUDA. If they raise, all streams are synchronized before the error is passed on, so
        that the next run finds idle streams.

        After the worst of CUDA's errors every later call fails, too. If the synchronization fails, the device counts as
        broken, and Lost is raised. It does, too, where another rank is lost.

        Raises the error of a call of the host, too, if one has failed."""
        self.api.enter()
        try:
            yield
            if self._wrong is not None:
                raise self._wrong
        except RankLost:
            self._flight, self.broken = None, True
            raise
        except BaseException as error:
            self._flight = None
            try:
                self._synchronize()
            except Exception:
                self.broken = True
                if isinstance(error, Exception):
                    raise Lost(error) from error
            self._wrong = None  # no call of the host is left
            raise

    def _enqueue(self, prepared: Prepared, captured: bool = False) -> None:
        self._fork(self._edge, prepared.sides)
        for _, _, call in prepared.calls if captured else self._in_order(prepared):
            call()
        self._join(prepared.sides)

    def _in_order(self, prepared: Prepared) -> Iterator[tuple[int, Stream, Call]]:
        """The calls, which are enqueued one by one. Waits for those of the host now and then (BEHIND)."""
        behind = 0
        for one in prepared.calls:
            yield one
            behind += bool(behind or one[1] in BY_HOST)
            if behind > BEHIND:
                for stream in BY_HOST:
                    self.api.synchronize(self.streams[stream])
                behind = 0

    def _fork(self, event: int, sides: Sequence[Stream]) -> None:
        """Make these streams wait for all work that the compute stream has been given so far."""
        self.api.record(event, self.streams["compute"])
        for side in sides:
            self.api.wait(self.streams[side], event)

    def _join(self, sides: Sequence[Stream]) -> None:
        """Make the compute stream wait for all work that these streams have been given so far."""
        for side in sides:
            self.api.record(self._ends[side], self.streams[side])
            self.api.wait(self.streams["compute"], self._ends[side])

    def _captured(self, prepared: Prepared, times: int = 1) -> int:
        """The calls captured as one graph, `times` times in a row."""
        compute = self.streams["compute"]
        self.api.begin_capture(compute)
        try:
            for _ in range(times):
                self._enqueue(prepared, captured=True)
        except BaseException:
            with contextlib.suppress(Exception):  # the capture is spoiled, but it must end before streams can be used
                self.api.release_graph(self.api.end_capture(compute))
            raise
        try:
            return self.api.end_capture(compute)
        except Exception as error:  # a call did something that a capture forbids, and said nothing
            raise KernelFailed(f"cuda: the capture of a graph failed: {error}; {_no_graph()} does without") from error

    def attempt(self, call: Call) -> None:
        """Run a call once. Where steps are captured, also capture it: a call may fail in a capture alone."""
        self.settle()
        alone = Prepared([(0, "compute", call)])
        with self._settled():
            self._enqueue(alone)
            self._synchronize()
            if self.graphs:
                self.api.release_graph(self._captured(alone))

    def run_timed(self, prepared: Prepared) -> tuple[list[Timed], float]:
        api, compute = self.api, self.streams["compute"]
        count = 2 * len(prepared.calls) + 2
        self.settle()
        api.enter()
        events = [api.event(timed=True) for _ in range(count)]
        begin, *between, end = events
        try:
            with self._settled():
                self._fork(begin, prepared.sides)
                for k, (_, stream, call) in enumerate(self._in_order(prepared)):
                    api.record(between[2 * k], self.streams[stream])
                    call()
                    api.record(between[2 * k + 1], self.streams[stream])
                self._join(prepared.sides)
                api.record(end, compute)
                self._synchronize()
                spans = [
                    (i, stream, api.elapsed(begin, between[2 * k]), api.elapsed(begin, between[2 * k + 1]))
                    for k, (i, stream, _) in enumerate(prepared.calls)
                ]
                return spans, api.elapsed(begin, end)
        finally:
            for event in events:
                if not self.broken:
                    api.release_event(event)

    def seconds(self, prepared: Prepared, times: int = 1) -> float:
        """Seconds of one run on the compute stream, the mean of `times` runs. Several runs are replayed as one graph,
        because a kernel of microseconds takes as long to launch as to run."""
        api, compute = self.api, self.streams["compute"]
        self.settle()
        api.enter()
        begin, end = api.event(timed=True), api.event(timed=True)
        graph = None
        try:
            with self._settled():
                if times > 1:
                    graph = self._captured(prepared, times)
                api.record(begin, compute)
                if graph is None:
                    self._enqueue(prepared)
                else:
                    api.replay(graph, compute)
                api.record(end, compute)
                api.synchronize(compute)
                return api.elapsed(begin, end) / times
        finally:
            if not self.broken:
                if graph is not None:
                    api.release_graph(graph)
                for event in (begin, end):
                    api.release_event(event)

    # ---- values

    def read(self, bytes: Bytes) -> np.ndarray:
        host = np.empty(bytes.nbytes, np.uint8)
        self._move(_address(host), bytes.address, bytes.nbytes, "out")
        return host

    def write(self, bytes: Bytes, source: np.ndarray) -> None:
        self._move(bytes.address, _address(source), bytes.nbytes, "in")

    def _move(self, to: int, source: int, nbytes: int, direction: Direction) -> None:
        with self._settled():
            self.api.copy(to, source, nbytes, direction, self.streams["compute"])
            self.api.synchronize(self.streams["compute"])

    def retain(self, host: np.ndarray) -> np.ndarray:
        """A copy: `close` releases page-locked memory."""
        return host.copy()

    def close(self) -> None:
        """Wait for a run in flight, then give everything back. If CUDA is broken, the end of the process does that."""
        if self.broken:
            return
        self.settle()
        self.api.enter()
        for prepared in self._prepared:
            if prepared.graph is not None:
                self.api.release_graph(prepared.graph)
            for event in prepared.events:
                self.api.release_event(event)
        self._prepared.clear()
        for event in (self._edge, self._landed, *self._ends.values(), *self._over):
            self.api.release_event(event)
        for stream in self._own:
            self.api.release_stream(self.streams[stream])
        self.api.release(self.arena.address)
        self.arena = Bytes(0, 0)
        self.api.release_host(self.host)
        self.host = np.empty(0, np.uint8)  # the old bytes are gone: a late reader must get an error, not a crash


def _address(range_: Bytes | np.ndarray) -> int:
    return range_.address if isinstance(range_, Bytes) else range_.__array_interface__["data"][0]
