"""An imitation of torch.cuda that runs on the CPU and checks the order of all accesses.

Ops and copies run at once, in the thread that enqueues them, so a step leaves real numbers. Which of two accesses comes
first on a GPU is told by vector clocks, whose actors are the streams and the host's threads: a stream goes on from the
last op it was given, from the events that it was made to wait for, and from what the thread that enqueues knows. A
thread knows the events that it has waited for, and what other threads knew that it heard of.

Two accesses to the same bytes, one of which writes, must be ordered. Bytes of the device that were given back may be
anybody's: what is allocated later may be touched only behind *all* accesses to *all* that was freed before. So one run
stands for all orders that a GPU may take, and for all addresses that an allocator may choose.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from minidnn.torch.addresses.library import Library
from tests.torch.imitation_graph import CUDAGraph, tensors
from tests.torch.imitation_streams import Clock, Event, Generator, Stream, join

DISK = 1 << 60  # where the disk's bytes begin, behind all addresses of memory
EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}


class Race(AssertionError):
    """Two accesses to the same bytes are not ordered."""


@dataclass
class Memory:
    """Bytes of the device: the accesses so far, by actor, and those that come before the bytes were allocated."""

    ref: Any
    before: Clock
    reads: Clock = field(default_factory=dict)
    writes: Clock = field(default_factory=dict)
    nbytes: int = 0
    address: int = 0


@dataclass
class Piece:
    """An access to page-locked memory."""

    lo: int
    hi: int
    actor: str
    n: int
    write: bool


class Mode(TorchDispatchMode):
    def __init__(self, imitation: Imitation) -> None:
        super().__init__()
        self.imitation = imitation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.imitation.run(func, args, kwargs or {})


class Imitation:
    """What minidnn asks of torch.cuda. `with imitation:` stands around the caller's loop.

    delay: the host's copies sleep up to so many seconds first
    hurry: lines make each call before the calling thread goes on
    allocator: is asked for the device's memory, too
    """

    def __init__(
        self, seed: int = 0, delay: float = 0.0, hurry: bool = False, allocator: Library | None = None
    ) -> None:
        self.hurry, self.allocator = hurry, allocator
        self.captured: CUDAGraph | None = None
        self.lock, self.local, self.random, self.delay = threading.RLock(), threading.local(), Random(seed), delay
        self.default = Stream(self, "compute")
        self.counts = dict.fromkeys(("waits", "records", "out", "in", "host", "streams"), 0)
        self.memory: dict[int, Memory] = {}
        self.freed = Clock()
        self.pieces: list[Piece] = []
        self.locked: list[tuple[int, int]] = []
        self.default_generators = (Generator(),)
        self.races: list[str] = []

    # ---- the names of torch.cuda

    def Stream(self, device: Any = None) -> Stream:
        self.counts["streams"] += 1
        return Stream(self, f"stream {self.counts['streams']}")

    def Event(self) -> Event:
        return Event(self)

    def current_stream(self, device: Any = None) -> Stream:
        return getattr(self.local, "stream", None) or self.default

    def current_device(self) -> int:
        return 0

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.local.stream = getattr(self.local, "stream", None), stream
        try:
            if getattr(self.local, "mode", None) is None:
                with Mode(self):
                    yield
            else:
                yield
        finally:
            self.local.stream = before

    def cudart(self) -> Imitation:
        return self

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> int:
        self.locked.append((address, address + nbytes))
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        self.locked = [r for r in self.locked if r[0] != address]
        self.pieces = [p for p in self.pieces if self._is_locked(p.lo)]
        return 0

    def graph_pool_handle(self) -> None:
        return None

    def CUDAGraph(self) -> CUDAGraph:
        return CUDAGraph()

    @contextmanager
    def graph(self, graph: CUDAGraph, pool: Any = None) -> Iterator[None]:
        """A capture, on a stream of its own, which must have waited for all others at its end."""
        own, before, numbers = self.Stream(), self.default, torch.get_rng_state()
        join(own.clock, before.clock)
        self.default, self.captured, self.forked = own, graph, []
        try:
            yield
            for stream in self.forked:
                assert all(own.clock.get(a, 0) >= n for a, n in stream.clock.items()), "a stream is not joined"
        finally:
            self.default, self.captured = before, None
            torch.set_rng_state(numbers)
            join(before.clock, own.clock)
            graph.restore()

    # ---- running

    def __enter__(self) -> Imitation:
        self.local.mode = Mode(self)
        self.local.mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.local.mode.__exit__(*error)
        self.local.mode = None

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if any(isinstance(x, FakeTensor) for x in tensors((args, kwargs))):
            return func(*args, **kwargs)  # a trace
        stream = self.current_stream()
        name = func._schema.name.partition("::")[2]
        if stream is not self.default:
            is_copy = name == "copy_" and (kwargs.get("non_blocking") or args[2:] == (True,))
            assert is_copy or name == "as_strided", f"{name} on {stream.name}"
        if self.captured is not None:
            self.captured.keep(func, args)
        result = func(*args, **kwargs)
        if self.captured is not None:
            self.captured.note(func, args, kwargs, result)
        given, made = tensors((args, kwargs)), tensors(result)
        if any(isinstance(x, FakeTensor) for x in made):
            return result
        with self.lock:
            self._note(stream, func, name, args, given, made)
        return result

    def _note(self, stream: Stream, func: Any, name: str, args: Any, given: list, made: list) -> None:
        written = {
            id(x)
            for i, a in enumerate(func._schema.arguments)
            if a.alias_info is not None and a.alias_info.is_write and i < len(args)
            for x in (args[i] if isinstance(args[i], list | tuple) else [args[i]])
        }
        old = {x.untyped_storage()._cdata for x in given}
        new = [x for x in made if x.untyped_storage()._cdata not in old]
        if made and not new and not written:
            return  # a view
        join(stream.clock, self.known())
        n = stream.clock[stream.name] = stream.clock.get(stream.name, 0) + 1
        what = f"{name} on {stream.name}"
        for x in new:
            self._born(x)
        for x in given:
            self._access(x, stream.clock, stream.name, n, id(x) in written, what)
        for x in [] if name in EMPTY else new:
            self._access(x, stream.clock, stream.name, n, True, what)
        if stream is not self.default and name == "copy_":
            self.counts["out" if self._is_locked(args[0].data_ptr()) else "in"] += 1

    def _born(self, t: torch.Tensor) -> None:
        for key in [key for key, m in self.memory.items() if m.ref.expired()]:
            gone = self.memory.pop(key)
            for clock in (gone.before, gone.reads, gone.writes):
                join(self.freed, clock)
            if gone.address:
                assert self.allocator is not None
                self.allocator.free(gone.address, gone.nbytes, 0, 1)
        storage = t.untyped_storage()
        m = self.memory[storage._cdata] = Memory(StorageWeakRef(storage), dict(self.freed), nbytes=storage.nbytes())
        if self.allocator is not None:
            m.address = self.allocator.alloc(m.nbytes, 0, 1) or 0

    def _access(self, t: torch.Tensor, clock: Clock, actor: str, n: int, write: bool, what: str) -> None:
        storage = t.untyped_storage()
        if self._is_locked(storage.data_ptr()):
            lo = t.data_ptr()
            self.touch(Piece(lo, lo + t.numel() * t.itemsize, actor, n, write), clock, what)
            return
        m = self.memory.get(storage._cdata)
        if m is None or m.ref.expired():
            m = self.memory[storage._cdata] = Memory(StorageWeakRef(storage), {})
        for earlier in (m.before, m.writes, *([m.reads] if write else [])):
            self._ordered(earlier, clock, actor, what)
        (m.writes if write else m.reads)[actor] = n

    def _ordered(self, earlier: Clock, clock: Clock, actor: str, what: str) -> None:
        for other, n in earlier.items():
            if other != actor and clock.get(other, 0) < n:
                self._race(f"{what} comes after access {n} of {other} by chance")

    def _race(self, text: str) -> None:
        self.races.append(text)
        raise Race(text)

    # ---- the host

    def known(self) -> Clock:
        """What the calling thread knows."""
        if not hasattr(self.local, "clock"):
            self.local.clock = Clock()
        return self.local.clock

    def _is_locked(self, address: int) -> bool:
        return any(lo <= address < hi for lo, hi in self.locked)

    def touch(self, piece: Piece, clock: Clock, what: str) -> None:
        """Note an access to page-locked memory."""
        kept = []
        for p in self.pieces:
            over = p.lo < piece.hi and piece.lo < p.hi
            if over and (p.write or piece.write) and p.actor != piece.actor and clock.get(p.actor, 0) < p.n:
                self._race(f"{what} comes after access {p.n} of {p.actor} to the host's memory by chance")
            if not (over and piece.write and piece.lo <= p.lo and p.hi <= piece.hi):
                kept.append(p)
        self.pieces = [*kept, piece]

    def by_host(self, lo: int, nbytes: int, write: bool) -> None:
        """Note that the calling thread accesses these bytes of the host or of the disk, perhaps a while later."""
        if self.delay:
            time.sleep(self.random.random() * self.delay)
        actor = threading.current_thread().name
        with self.lock:
            clock = self.known()
            n = clock[actor] = clock.get(actor, 0) + 1
            self.counts["host"] += 1
            self.touch(Piece(lo, lo + nbytes, actor, n, write), clock, actor)

    def copying(self, to: np.ndarray, source: np.ndarray) -> None:
        """The host's copy of bytes."""
        self.by_host(source.ctypes.data, source.nbytes, write=False)
        self.by_host(to.ctypes.data, to.nbytes, write=True)
        np.copyto(to, source)
