"""A CUDA on the host's memory, on which the whole cuda backend runs (device, runtime, captured graphs).

Enqueued work runs late, in a random order of those that CUDA allows. A call that CUDA forbids raises Illegal. Kernels
are the real sources, compiled by g++ (tests/support/cuda/host.py); cuDNN's convolutions are the reference's.

Several GPUs, one for each thread, are FakeApis of one Machine. A thread that waits for its GPU also runs the work of
the others, since GPUs go on by themselves (tests/support/cuda/nccl.py moves bytes between them).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from threading import Condition, get_ident
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from minidnn.backends import layout
from minidnn.backends.cuda.cudnn import (
    BACKWARD_DATA,
    BACKWARD_FILTER,
    FORWARD,
    B,
    Convolution,
    CudnnPlan,
    Settings,
    W,
    X,
    Y,
)
from minidnn.backends.cuda.device import CudaDevice
from minidnn.backends.reference import bound
from minidnn.memory.execution.threads import page_aligned
from minidnn.program import Op, Pass, Tensor
from tests.support.cuda.host import library
from tests.support.op_examples import attrs


class Illegal(AssertionError):
    """CUDA would refuse this call, or its effect would be undefined."""


@dataclass(eq=False)
class Work:
    """A piece of work that was enqueued on a stream."""

    number: int
    stream: int
    run: Any  # a call; None if the work only orders others, as a record or a wait
    before: tuple[Work, ...]  # works that must have ended when this one begins
    what: str
    index: int | None = None  # the schedule's instruction that it belongs to, if a test sets it
    done: bool = False
    missing: int = 0  # how many of `before` have not ended
    behind: list[Work] = field(default_factory=list)  # works that wait for this one
    host: Any = None  # for a copy: the host's bytes
    kept: Any = None  # for a copy in: the host's bytes when it was enqueued
    group: Any = None  # of NCCL: begins when it is ready, and may end once all its transfers have (nccl.py)
    pending: dict[Work, None] | None = None  # the work of its GPU that has not ended


@dataclass(eq=False)
class Event:
    timed: bool
    behind: tuple[Work, ...] | None = None  # None: never recorded
    captured: Capture | None = None  # the capture in which it was recorded


@dataclass(eq=False)
class Capture:
    origin: int
    last: dict[int, Work] = field(default_factory=dict)  # participating stream -> its last captured work
    works: list[Work] = field(default_factory=list)
    tells: dict[Work, int] = field(default_factory=dict)  # work -> the event that each replay records for the host


class Machine:
    """One GPU or several, and the work on them that waits for nothing."""

    def __init__(self, seed: int = 0, patience: float = 600.0) -> None:
        """patience: seconds without any work that could run, after which a thread that waits gives up."""
        self.random, self.patience = Random(seed), patience
        self.ready: list[Work] = []
        self.changed = Condition()  # guards the work of all GPUs
        self.failed = False  # whether a thread has ended with an error: then no other one waits

    def end(self, work: Work) -> None:
        """The work has ended: what waits for it alone is ready."""
        work.done = True
        if work.pending is not None:
            del work.pending[work]
        for w in work.behind:
            w.missing -= 1
            if not w.missing:
                self.ready.append(w)
        work.behind.clear()
        self.changed.notify_all()


class FakeApi:
    """Stands in for the Api of backends/cuda/api.py.

    seed: determines the order in which enqueued work runs. `log` holds all work ever enqueued, in that order. `busy`
    holds, for each replay, how many pieces of earlier work had not run yet."""

    def __init__(self, memory: int = 1 << 30, seed: int = 0, machine: Machine | None = None) -> None:
        self.memory = memory  # bytes that are free at first
        self.machine = machine or Machine(seed)
        self.watch: Callable[[float], object] | None = None
        self.taken = 300 << 20  # bytes that CUDA itself takes; tests change it
        self.threads = {get_ident()}  # the threads that may use this GPU
        self.allocated: dict[int, np.ndarray] = {}
        self.pending: dict[Work, None] = {}  # in order of enqueueing
        self.last: dict[int, Work] = {}
        self.streams: list[int] = []
        self.events: dict[int, Event] = {}
        self.graphs: dict[int, Capture] = {}
        self.capture: Capture | None = None
        self.log: list[Work] = []
        self.compiled: set[tuple[str, str]] = set()  # what was asked to be compiled beforehand
        self.ranges: list[str] = []  # names of all NVTX ranges, in the order in which they began
        self.open = 0  # ranges that have not ended
        self.replays = 0
        self.busy: list[int] = []
        self.index: int | None = None
        self.by_host = 0  # the thread that makes a call of the host just now
        self._ids = 0

    def _id(self) -> int:
        self._ids += 1
        return self._ids

    def enter(self) -> None:
        self.threads.add(get_ident())

    def bus(self) -> str:
        return hex(id(self))

    def nccl(self) -> Any:
        from tests.support.cuda.nccl import FakeNccl

        return FakeNccl(self)

    # ---- memory

    def free_memory(self) -> int:
        return self.memory - sum(a.nbytes - 4096 for a in self.allocated.values())

    def total_memory(self) -> int:
        return self.memory + self.taken

    def allocate(self, nbytes: int) -> int:
        self._not_capturing("an allocation")
        raw = np.full(nbytes + 4096, 0xFF, np.uint8)
        address = raw.ctypes.data + -raw.ctypes.data % 4096
        self.allocated[address] = raw
        return address

    def release(self, address: int) -> None:
        self._not_capturing("a release")
        self._finish(self._left())
        del self.allocated[address]

    def allocate_host(self, nbytes: int) -> np.ndarray:
        self._not_capturing("an allocation")
        array = page_aligned(nbytes)
        array.fill(0xFF)
        return array

    def release_host(self, array: np.ndarray) -> None:
        self._finish(self._left())

    # ---- streams

    def stream(self) -> int:
        self.streams.append(self._id())
        return self.streams[-1]

    def release_stream(self, stream: int) -> None:
        self._finish([w for w in self._left() if w.stream == stream])
        self.streams.remove(stream)

    def event(self, timed: bool = False) -> int:
        self.events[number := self._id()] = Event(timed)
        return number

    def release_event(self, event: int) -> None:
        del self.events[event]

    def _takes_part(self, stream: int) -> bool:
        return self.capture is not None and (stream == self.capture.origin or stream in self.capture.last)

    def _entered(self, what: str) -> None:
        if self.by_host == get_ident():
            raise Illegal(f"{what} by a function that CUDA calls on the host")
        if get_ident() not in self.threads:
            raise Illegal(f"{what} on a thread that works on no GPU, or on another")

    def enqueue(self, stream: int, run: Any, what: str, *more: Work, group: Any = None) -> Work:
        self._entered(what)
        last = self.capture.last if self._takes_part(stream) else self.last
        before = tuple(dict.fromkeys(([last[stream]] if stream in last else []) + list(more)))
        work = Work(self._id(), stream, run, before, what, self.index, group=group)
        last[stream] = work
        self.log.append(work)
        if self._takes_part(stream):
            self.capture.works.append(work)
        elif self.capture is not None:
            raise Illegal(f"{what} on stream {stream}, which takes no part in the capture that is going on")
        else:
            self._await(work)
        return work

    def _await(self, work: Work) -> None:
        """It runs once all has ended that it waits for."""
        with self.machine.changed:
            self.pending[work] = None
            work.pending = self.pending
            waits = [b for b in work.before if not b.done]
            work.missing = len(waits)
            for b in waits:
                b.behind.append(work)
            if not waits:
                self.machine.ready.append(work)
                self.machine.changed.notify_all()

    def record(self, event: int, stream: int) -> None:
        e = self.events[event]
        if e.timed and self.capture is not None:
            raise Illegal("a timed event in a capture")
        e.behind = (self.enqueue(stream, None, "record"),)
        e.captured = self.capture

    def tell(self, event: int, stream: int) -> None:
        work = self.enqueue(stream, None, "tell")
        if self.capture is None:
            self.events[event].behind, self.events[event].captured = (work,), None
        else:
            self.capture.tells[work] = event

    def reach(self, event: int) -> None:
        self._not_capturing("a synchronization")
        e = self.events[event]
        if e.behind is None or e.captured is not None:
            raise Illegal("the host waits for an event that was never recorded, or in a capture and not for the host")
        self._finish(e.behind)

    def wait(self, stream: int, event: int) -> None:
        e = self.events[event]
        if e.behind is None:
            raise Illegal("a wait for an event that was never recorded")
        if self.capture is None:
            if e.captured is not None:
                raise Illegal("a wait outside of a capture for an event recorded in it")
        elif e.captured is not self.capture:  # outside, or in a capture that has ended
            raise Illegal("a wait in a capture for an event recorded outside")
        else:
            self.capture.last.setdefault(stream, e.behind[0])  # the stream takes part from here on
        self.enqueue(stream, None, "wait", *e.behind)

    def synchronize(self, stream: int) -> None:
        self._not_capturing("a synchronization")
        self._finish([w for w in self._left() if w.stream == stream])

    def elapsed(self, start: int, end: int) -> float:
        a, b = self.events[start], self.events[end]
        if not (a.timed and b.timed and a.behind and b.behind and a.behind[0].done and b.behind[0].done):
            raise Illegal("elapsed time of events that are not timed, or have not happened")
        return (b.behind[0].number - a.behind[0].number) * 1e-6

    def _not_capturing(self, what: str) -> None:
        self._entered(what)
        if self.capture is not None:
            raise Illegal(f"{what} during a capture")

    def _left(self) -> list[Work]:
        """The work that has not ended."""
        with self.machine.changed:
            return list(self.pending)

    def _finish(self, wanted: Iterable[Work]) -> None:
        """Run pending work, each time a random piece that is ready, until all of `wanted` has ended."""
        m, began = self.machine, monotonic()
        with m.changed:
            left = [w for w in wanted if not w.done]
            while left:
                if m.ready:
                    self._run(m.random.randrange(len(m.ready)))
                    began = monotonic()
                else:
                    self._idle(monotonic() - began)
                while left and left[-1].done:
                    left.pop()

    def _run(self, k: int) -> None:
        """Run the k-th piece of work that is ready."""
        ready = self.machine.ready
        work = ready[k]
        if work.kept is not None and work.kept.tobytes() != work.host.tobytes():
            raise Illegal("the host changed what a copy that is on its way brings in")
        begins = work.group is not None and work.group.begin(work)
        if work.run is not None:
            work.run()
        ready[k] = ready[-1]
        ready.pop()
        if not begins:
            self.machine.end(work)

    def _idle(self, waited: float) -> None:
        """Nothing can run until another thread gives its GPU more to do."""
        if self.watch is not None:
            self.watch(waited)
        if self.machine.failed or waited > self.machine.patience:
            raise Illegal("a GPU waits for work that never comes")
        self.machine.changed.wait(0.01)

    # ---- work

    def copy(self, to: int, source: int, nbytes: int, direction: str, stream: int) -> None:
        there, here = _bytes(to, nbytes), _bytes(source, nbytes)
        work = self.enqueue(stream, partial(np.copyto, there, here), f"copy {direction}")
        work.host = here if direction == "in" else there
        self._keep(work)

    def _keep(self, work: Work) -> None:
        """Remember the bytes that a copy in is to bring, to check that they do not change before it runs.

        If a pending copy out writes to the same bytes, they may change, and so they may if the host has yet to do
        something in the order of a stream."""
        if work.what == "copy in" and work not in (self.capture.works if self.capture else ()):
            earlier = (w for w in self._left() if w.what in ("copy out", "host") and w is not work)
            if not any(w.what == "host" or np.may_share_memory(w.host, work.host) for w in earlier):
                work.kept = work.host.copy()

    def fill(self, address: int, value: int, nbytes: int, stream: int) -> None:
        self.enqueue(stream, partial(_bytes(address, nbytes).fill, value), "fill")

    def communicate(self, stream: int, group: Any) -> None:
        self.enqueue(stream, None, "group", group=group)

    def compile(self, wanted: Iterable[tuple[str, str]]) -> None:
        self.compiled |= set(wanted)

    def functions(self, source: str, storage: str = "float") -> Mapping[str, Any]:
        found = library(source, storage=storage)
        return {name: (found, name) for name in found.signatures}

    def bind(
        self, function: Any, arguments: Sequence[np.generic], grid: int, block: int, shared: int, stream: int
    ) -> Any:
        found, name = function
        call = found.bind(name, list(arguments), grid, block, shared, False)
        return lambda: self.enqueue(stream, call, name)

    def host(self, call: Any, stream: int) -> Any:
        def run() -> None:
            self.by_host = get_ident()
            try:
                call()
            except BaseException as error:
                raise Illegal("a function that CUDA calls on the host raised an error") from error
            finally:
                self.by_host = 0

        return lambda: self.enqueue(stream, run, "host")

    # ---- profilers

    def push_range(self, name: str) -> None:
        self.ranges.append(name)
        self.open += 1

    def pop_range(self) -> None:
        if not self.open:
            raise Illegal("the end of a range that did not begin")
        self.open -= 1

    # ---- graphs

    def begin_capture(self, stream: int) -> None:
        self._not_capturing("a capture")
        self.capture = Capture(stream)

    def end_capture(self, stream: int) -> int:
        capture, self.capture = self.capture, None
        if capture is None or capture.origin != stream:
            raise Illegal("the end of a capture that did not begin on this stream")
        end, reached = capture.last[stream], set()
        front = [end]
        while front:
            work = front.pop()
            if work not in reached:
                reached.add(work)
                front += work.before
        for other, work in capture.last.items():
            if work not in reached:
                raise Illegal(f"stream {other} is not joined back when the capture ends")
        self.graphs[number := self._id()] = capture
        return number

    def replay(self, graph: int, stream: int) -> None:
        self._not_capturing("a replay")
        self.busy.append(len([w for w in self._left() if w.run is not None]))
        begin = self.enqueue(stream, None, "replay")
        made: dict[Work, Work] = {}
        for work in self.graphs[graph].works:
            before = (begin, *(made[b] for b in work.before))
            group = work.group and replace(work.group)
            made[work] = replace(work, before=before, done=False, behind=[], number=self._id(), group=group)
            made[work].stream = stream
            self._keep(made[work])
            self._await(made[work])
            if work in self.graphs[graph].tells:
                self.events[self.graphs[graph].tells[work]].behind = (made[work],)
        self.enqueue(stream, None, "replayed", *made.values())
        self.replays += 1

    def release_graph(self, graph: int) -> None:
        del self.graphs[graph]


def _bytes(address: int, nbytes: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


class FakeCudnn:
    """A cuDNN whose convolutions are the reference's, enqueued like all work. It has two plans: with and without
    workspace."""

    target = SimpleNamespace(capability=(9, 0))
    settings = Settings(tf32=False)

    def __init__(self, api: FakeApi) -> None:
        self.api, self.stream = api, 0

    def plans(self, problem: Convolution) -> tuple[CudnnPlan, ...]:
        return (CudnnPlan(problem, "eng1_k0=1", 5000, 0, None), CudnnPlan(problem, "eng0", 0, 1, None))

    listed = plans

    def set_stream(self, stream: int) -> None:
        self.stream = stream

    def execute(self, plan: CudnnPlan, pack: dict[int, int], workspace: int) -> None:
        self.api.enqueue(self.stream, partial(_convolve, plan, dict(pack), workspace), plan.name)


def _convolve(plan: CudnnPlan, pack: dict[int, int], workspace: int) -> None:
    p = plan.problem
    shapes = {X: p.x, W: p.w, Y: p.y, B: p.w[:1]}

    def array(uid: int) -> np.ndarray:
        t = Tensor("t", shapes[uid], p.dtype)
        return layout.view(_bytes(pack[uid], t.nbytes), t)

    if plan.workspace:
        _bytes(workspace, plan.workspace).fill(0x7F)
    a = attrs(kernel=p.w[2:], stride=p.stride, pad=p.pad, dilation=p.dilation, group=p.x[1] // p.w[1])
    reads, write = {
        FORWARD: ([X, W, *([B] if p.bias else [])], Y), BACKWARD_DATA: ([W, Y], X), BACKWARD_FILTER: ([X, Y], W),
    }[p.which]  # fmt: skip
    kind = f"convolution.{p.which}{'_relu' if p.relu else ''}"
    op = Op(plan.name, kind, "", Pass.FORWARD, (), (), a)
    bound(op, [array(uid) for uid in reads], [array(write)])()


def fake_device(
    seed: int = 0, graphs: bool = True, memory: int = 1 << 30, nvtx: bool = False, machine: Machine | None = None
) -> CudaDevice:
    api = FakeApi(memory, seed, machine)
    return CudaDevice(api, FakeCudnn(api), "a CUDA on the host", graphs, nvtx=nvtx)  # type: ignore[arg-type]


def plant(device: CudaDevice, refused: Callable[[CudnnPlan], bool], how: str = "at once") -> None:
    """Plant a fault: cuDNN does not run the plans that `refused` accepts. "at once": their calls raise an error;
    "captured": only in a capture; "broken": they end in an error of the GPU, after which CUDA does nothing more."""
    execute, api = device.cudnn.execute, cast(FakeApi, device.api)

    def illegal() -> None:
        raise RuntimeError("cudaErrorIllegalAddress")

    def faulty(plan: CudnnPlan, pack: dict[int, int], workspace: int) -> None:
        if refused(plan) and how == "broken":
            api.enqueue(device.compute, illegal, "an illegal access")
        elif refused(plan) and (how == "at once" or api.capture is not None):
            raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")
        else:
            execute(plan, pack, workspace)

    device.cudnn.execute = faulty  # type: ignore[method-assign]
