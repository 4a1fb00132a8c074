"""The runtime of devices that live in the host's memory: one allocation is the arena, another the host's part.

The calling thread computes. Each copy stream is a thread of its own, so that copies really overlap compute. The child
of a fork has none of its parent's threads, and starts its own at its first run.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from statistics import median
from time import perf_counter, sleep

import numpy as np

from minidnn.memory.execution.runtime import BoundCall, Call, Runtime, Timed
from minidnn.memory.schedule import STREAMS, Stream

PAGE = 4096


def page_aligned(nbytes: int) -> np.ndarray:
    """An allocation of `nbytes` uint8 whose address is a multiple of a page.

    So offsets alone decide every tensor's alignment.
    """
    raw = np.empty(nbytes + PAGE, np.uint8)
    start = -raw.ctypes.data % PAGE
    return raw[start : start + nbytes]


def copying(to: np.ndarray, source: np.ndarray) -> Call:
    """A call that copies `source` to `to`, NumPy's way."""
    return partial(np.copyto, to, source)


class _Ended(Exception):
    """A stream ends since another one has failed."""


@dataclass(eq=False)
class Prepared:
    """The calls of each stream, in order."""

    calls: dict[Stream, list[tuple[int, Call]]] = field(default_factory=lambda: {s: [] for s in STREAMS})
    waits: set[tuple[Stream, int]] = field(default_factory=set)  # (stream, position) of calls that only wait
    events: list[threading.Event] = field(default_factory=list)


class Threads(Runtime):
    """The runtime on the host's memory, with a thread for each copy stream.

    delays:  copies sleep up to this many seconds at random first, which exposes missing waits
    check:   raises where this process cannot compute; called once in each process
    copying: makes the call that copies an array of bytes to another; both live as long as the runtime
    """

    clock = staticmethod(perf_counter)  # what times a stream's calls: in its thread, before and after each

    def __init__(
        self,
        arena: int,
        host: int,
        delays: float = 0.0,
        seed: int = 0,
        check: Callable[[], None] = lambda: None,
        copying: Callable[[np.ndarray, np.ndarray], Call] = copying,
    ) -> None:
        """`arena` and `host` are bytes."""
        self.arena, self.host = page_aligned(arena), page_aligned(host)
        self.delays, self.random, self.broken = delays, Random(seed), False
        self._failure: BaseException | None = None
        self._active: Prepared | None = None
        self._spans: list[Timed] | None = None
        self._begin: dict[Stream, threading.Semaphore] = {}
        self._closed = False
        self._check, self._copying = check, copying
        self._start_all(("out", "in"))

    def _start_all(self, streams: Sequence[Stream]) -> None:
        """Start a thread for each copy stream, in this process."""
        self._check()
        self._process = os.getpid()
        self._ended = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        for stream in streams:
            self._start(stream)

    def _start(self, stream: Stream) -> None:
        self._begin[stream] = threading.Semaphore(0)
        self._threads.append(
            threading.Thread(target=self._copy_loop, args=(stream,), name=f"minidnn-{stream}", daemon=True)
        )
        self._threads[-1].start()

    # ---- binding

    def copy(self, to: np.ndarray, source: np.ndarray, stream: Stream) -> Call:
        return self._copying(to, source)

    def landing(self, to: np.ndarray, source: np.ndarray) -> Call:
        return copying(to, source)

    def land(self, landings: Sequence[Call]) -> None:
        """Copy at once: nothing is ever in flight."""
        for call in landings:
            call()

    def fill(self, bytes: np.ndarray, value: int) -> Call:
        return partial(bytes.fill, value)

    def bind(self, bound: Sequence[BoundCall], outputs_after: int | None = None) -> Prepared:
        awaited = {on: threading.Event() for on in {b.on for b in bound if b.on is not None}}
        prepared = Prepared(events=list(awaited.values()))
        for stream in {b.stream for b in bound} - {"compute", *self._begin}:
            self._start(stream)
        for b in bound:
            calls = prepared.calls[b.stream]
            if b.on is not None:
                prepared.waits.add((b.stream, len(calls)))
                calls.append((b.index, partial(self._await, awaited[b.on])))
                continue
            assert b.call is not None
            calls.append((b.index, b.call))
            if b.index in awaited:
                calls.append((b.index, awaited[b.index].set))
        return prepared

    # ---- running

    def run(self, prepared: Prepared, after: Callable[[int], object] | None = None) -> None:
        if self._process != os.getpid():
            self._start_all(list(self._begin))
        for event in prepared.events:
            event.clear()
        self._active, self._failure = prepared, None
        for semaphore in self._begin.values():
            semaphore.release()
        try:
            if after is None:
                self._run(prepared, "compute")
            else:
                for i, call in prepared.calls["compute"]:
                    call()
                    after(i)
        except BaseException as error:
            self._fail(prepared, error)
        finally:
            for _ in self._threads:
                self._ended.acquire()
        if self._failure is not None:
            raise self._failure

    def launch(self, prepared: Prepared, meanwhile: Callable[[], object] | None = None) -> None:
        """Run at once: the thread that launches also computes, so the run has ended when this returns."""
        if meanwhile is not None:
            meanwhile()
        self.run(prepared)

    def wait_for_outputs(self) -> None:
        """Return at once: nothing is ever in flight."""

    def settle(self) -> None:
        """Return at once: nothing is ever in flight."""

    def run_timed(self, prepared: Prepared) -> tuple[list[Timed], float]:
        spans: list[Timed] = []
        self._spans = spans
        began = self.clock()
        try:
            self.run(prepared)
            seconds = self.clock() - began
        finally:
            self._spans = None
        return [(i, stream, start - began, end - began) for i, stream, start, end in spans], seconds

    def seconds(self, prepared: Prepared, times: int = 1) -> float:
        """Seconds of compute, the median of `times` runs: a host's threads are interrupted now and then."""
        taken = []
        for _ in range(times):
            spans, _ = self.run_timed(prepared)
            taken.append(sum(end - start for _, stream, start, end in spans if stream == "compute"))
        return median(taken)

    def _await(self, event: threading.Event) -> None:
        """Wait for an instruction. If a stream has failed, this one ends here, since that instruction may never run."""
        event.wait()
        if self._failure is not None:
            raise _Ended

    def _run(self, prepared: Prepared, stream: Stream) -> None:
        spans = self._spans
        if spans is None:
            for _, call in prepared.calls[stream]:
                call()
            return
        for i, call in prepared.calls[stream]:
            start = self.clock()
            call()
            spans.append((i, stream, start, self.clock()))

    def _fail(self, prepared: Prepared, error: BaseException) -> None:
        """Remember the first failure, and set all events so that waiting streams end instead of hanging."""
        if self._failure is None:
            self._failure = error
        for event in prepared.events:
            event.set()

    def _copy_loop(self, stream: Stream) -> None:
        """The thread of one copy stream: make the stream's calls of each run, until the runtime is closed."""
        while True:
            self._begin[stream].acquire()
            if self._closed:
                return
            prepared = self._active
            assert prepared is not None
            try:
                if self.delays:
                    for k, (_, call) in enumerate(prepared.calls[stream]):
                        if (stream, k) not in prepared.waits:
                            sleep(self.random.random() * self.delays)
                        call()
                else:
                    self._run(prepared, stream)
            except BaseException as error:
                self._fail(prepared, error)
            finally:
                self._ended.release()

    # ---- values

    def read(self, bytes: np.ndarray) -> np.ndarray:
        return bytes

    def write(self, bytes: np.ndarray, source: np.ndarray) -> None:
        np.copyto(bytes, source)

    def close(self) -> None:
        """End the copy threads. The memory goes with the object."""
        if not self._closed and self._process == os.getpid():
            self._closed = True
            for semaphore in self._begin.values():
                semaphore.release()
            for thread in self._threads:
                thread.join()
