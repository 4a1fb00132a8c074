"""The executor: binds a schedule's instructions to a device's kernels once, then replays them each step.

The device (minidnn/backends) is handed in. It provides kernels and array layouts; bytes, streams and waits are
ours: the arena is one allocation, the host store another, and each copy stream is a thread of its own, so that
copies really overlap compute. Nothing is allocated, looked up or inferred inside a step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from time import perf_counter, sleep
from typing import Any, Protocol

import numpy as np

from minidnn.memory.schedule import (
    STREAMS,
    Alloc,
    Arrangement,
    Compute,
    Free,
    Instruction,
    Offload,
    Prefetch,
    Schedule,
    Stay,
    Stream,
    Wait,
    aligned,
)
from minidnn.memory.trace import Span, Trace, memory_curve, name_of
from minidnn.program import Algorithm, Op, Tensor

Call = Callable[[], Any]
PAGE = 4096


class Device(Protocol):
    """What a backend offers. `array` gives the logical view of a tensor over its physical bytes."""

    name: str
    memory: int

    def algorithms(self, op: Op) -> tuple[Algorithm, ...]: ...

    def array(self, buffer: np.ndarray, tensor: Tensor) -> np.ndarray: ...

    def prepare(
        self, op: Op, algorithm: Algorithm, views: Mapping[Tensor, np.ndarray], workspace: np.ndarray
    ) -> Call: ...


class NotFinite(ArithmeticError):
    """An op wrote a value that is not finite."""

    def __init__(self, op: Op, tensor: Tensor) -> None:
        super().__init__(f"{op.name} wrote a value into {tensor.name} that is not finite")
        self.op, self.tensor = op, tensor


def page_aligned(nbytes: int) -> np.ndarray:
    """One allocation of `nbytes` uint8 whose address is a multiple of a page, so that offsets alone decide
    every tensor's alignment."""
    raw = np.empty(nbytes + PAGE, np.uint8)
    start = -raw.ctypes.data % PAGE
    return raw[start : start + nbytes]


@dataclass
class _Loaded:
    """A schedule bound to addresses: what each stream calls, in order."""

    schedule: Schedule
    calls: dict[Stream, list[tuple[int, Call]]] = field(default_factory=lambda: {s: [] for s in STREAMS})
    events: list[threading.Event] = field(default_factory=list)
    current: dict[Tensor, int] = field(default_factory=dict)  # which of its two host places an input is read from
    fresh: set[Tensor] = field(default_factory=set)  # inputs whose other place holds the next batch
    host_base: int = 0


class Machine:
    """Runs the schedules of one net (TRAIN, ACCUMULATE, TEST) on one device, in one arena.

    debug:  freed bytes are filled with 0xFF, which is NaN in every float format
    delays: copies sleep up to this many seconds at random first, to bring out missing waits
    """

    def __init__(
        self,
        device: Device,
        arrangement: Arrangement,
        debug: bool = False,
        delays: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.device, self.arrangement = device, arrangement
        budget = arrangement.budget or 0
        # The budget's bytes are taken at once, used or not; one beyond what the device has limits nothing.
        self.arena = page_aligned(budget if arrangement.arena <= budget <= device.memory else arrangement.arena)
        self.host = page_aligned(arrangement.host)
        self.debug, self.delays, self.random = debug, delays, Random(seed)
        if debug:
            self.arena.fill(0xFF)
        self.homes: dict[Tensor, np.ndarray] = {}
        self.loaded: dict[str, _Loaded] = {}
        base = 0
        for name, schedule in arrangement.schedules.items():
            self.loaded[name] = self._load(schedule, base)
            base += schedule.host_bytes
        self._failure: BaseException | None = None
        self._active: _Loaded | None = None
        self._on_span: Callable[[int, Stream, float, float], None] | None = None
        self._begin = {s: threading.Semaphore(0) for s in ("out", "in")}
        self._ended = threading.Semaphore(0)
        self._closed = False
        self._threads = [
            threading.Thread(target=self._copy_loop, args=(s,), name=f"minidnn-{s}", daemon=True) for s in ("out", "in")
        ]
        for thread in self._threads:
            thread.start()

    # ---- binding

    def _load(self, schedule: Schedule, host_base: int) -> _Loaded:
        loaded = _Loaded(schedule, host_base=host_base)
        loaded.current = dict.fromkeys(schedule.program.inputs, 0)
        awaited = {x.on: threading.Event() for x in schedule.instructions if isinstance(x, Wait)}
        loaded.events = list(awaited.values())
        for b in schedule.buffers:
            if b.home:
                t = b.stays[0].tensor
                self.homes[t] = self.device.array(self._bytes(schedule, b.stays[0]), t)
        nothing = np.empty(0, np.uint8)
        for i, x in enumerate(schedule.instructions):
            if isinstance(x, Wait):
                event = awaited[x.on]
                loaded.calls[x.stream].append((i, event.wait))
                continue
            if isinstance(x, (Alloc, Free)):
                if isinstance(x, Free) and self.debug and not _refilled(schedule, i):
                    at = schedule.offset[x.buffer]
                    loaded.calls["compute"].append((i, partial(self.arena[at : at + x.buffer.nbytes].fill, 0xFF)))
                continue
            if isinstance(x, Compute):
                views = {s.tensor: self.device.array(self._bytes(schedule, s), s.tensor) for s in (*x.reads, *x.writes)}
                workspace = self._bytes(schedule, x.workspace) if x.workspace else nothing
                call = self.device.prepare(x.op, x.algorithm, views, workspace)
            else:
                call = self._bind_copy(loaded, x)
            loaded.calls[x.stream].append((i, call))
            if i in awaited:
                loaded.calls[x.stream].append((i, awaited[i].set))
        return loaded

    def _bytes(self, schedule: Schedule, stay: Stay) -> np.ndarray:
        at = schedule.offset[stay.buffer]
        return self.arena[at : at + stay.tensor.nbytes]

    def _host(self, loaded: _Loaded, t: Tensor, place: int = 0) -> np.ndarray:
        at = loaded.host_base + loaded.schedule.host_offset[t] + place * aligned(t.nbytes)
        return self.host[at : at + t.nbytes]

    def _bind_copy(self, loaded: _Loaded, x: Offload | Prefetch) -> Call:
        t = x.stay.tensor
        device = self._bytes(loaded.schedule, x.stay)
        places = [self._host(loaded, t, k) for k in range(2 if t in loaded.current else 1)]
        copies: list[Call] = [
            partial(np.copyto, place, device) if isinstance(x, Offload) else partial(np.copyto, device, place)
            for place in places
        ]
        if len(copies) == 1:
            return copies[0]
        current = loaded.current

        def copy_current() -> None:
            copies[current[t]]()

        return copy_current

    # ---- running

    def step(self, name: str = "TRAIN", trace: bool = False, check: bool = False) -> Trace | None:
        """Replay one step of the named program. With `trace`, time every instruction. With `check`, raise
        NotFinite at the first op whose float results are not all finite (and leave the step unfinished)."""
        loaded = self.loaded[name]
        for event in loaded.events:
            event.clear()
        for t in loaded.fresh:
            loaded.current[t] ^= 1
        loaded.fresh.clear()
        self._active, self._failure = loaded, None
        spans: list[tuple[int, Stream, float, float]] = []
        self._on_span = (lambda *span: spans.append(span)) if trace else None
        began = perf_counter()
        for semaphore in self._begin.values():
            semaphore.release()
        try:
            if check:
                self._run_checked(loaded)
            else:
                self._run(loaded, "compute")
        except BaseException as error:
            self._fail(loaded, error)
        finally:
            for _ in self._threads:
                self._ended.acquire()
        seconds = perf_counter() - began
        if self._failure is not None:
            raise self._failure
        return self._trace(loaded.schedule, spans, began, seconds) if trace else None

    def _run(self, loaded: _Loaded, stream: Stream) -> None:
        record = self._on_span
        if record is None:
            for _, call in loaded.calls[stream]:
                call()
            return
        for i, call in loaded.calls[stream]:
            start = perf_counter()
            call()
            record(i, stream, start, perf_counter())

    def _run_checked(self, loaded: _Loaded) -> None:
        schedule = loaded.schedule
        for i, call in loaded.calls["compute"]:
            call()
            x = schedule.instructions[i]
            if isinstance(x, Compute):
                for s in x.writes:
                    if s.tensor.dtype.startswith("float"):
                        view = self.device.array(self._bytes(schedule, s), s.tensor)
                        if not np.isfinite(view).all():
                            raise NotFinite(x.op, s.tensor)

    def _fail(self, loaded: _Loaded, error: BaseException) -> None:
        """Remember the first failure and let every waiting stream run out instead of hanging."""
        if self._failure is None:
            self._failure = error
        for event in loaded.events:
            event.set()

    def _copy_loop(self, stream: Stream) -> None:
        while True:
            self._begin[stream].acquire()
            if self._closed:
                return
            loaded = self._active
            assert loaded is not None
            try:
                if self.delays:
                    for i, call in loaded.calls[stream]:
                        if not isinstance(loaded.schedule.instructions[i], Wait):
                            sleep(self.random.random() * self.delays)
                        call()
                else:
                    self._run(loaded, stream)
            except BaseException as error:
                self._fail(loaded, error)
            finally:
                self._ended.release()

    def _trace(
        self, schedule: Schedule, raw: Sequence[tuple[int, Stream, float, float]], began: float, seconds: float
    ) -> Trace:
        spans, stall = [], 0.0
        finished: dict[int, float] = {}
        for i, stream, start, end in sorted(raw, key=lambda r: (r[0], r[2])):
            x = schedule.instructions[i]
            if isinstance(x, Wait):
                stall += end - start if stream == "compute" else 0.0
            elif isinstance(x, (Compute, Offload, Prefetch)) and i not in finished:
                finished[i] = end - began
                spans.append(Span(i, stream, name_of(x), start - began, end - began))
        moments: list[tuple[Instruction, float]] = []
        now = 0.0
        for i, x in enumerate(schedule.instructions):
            if isinstance(x, Compute):
                now = finished[i]
            elif isinstance(x, (Alloc, Free)):
                moments.append((x, now))
        return Trace(tuple(spans), seconds, stall, memory_curve(schedule, moments))

    # ---- values

    def write(self, tensor: Tensor, array: np.ndarray, program: str = "TRAIN") -> None:
        """Put an input for the next step on the host, in the device's layout. May run beside a step.

        Raises ValueError where the shape differs; values are converted to the tensor's dtype."""
        loaded = self.loaded[program]
        t = next(t for t in loaded.current if t == tensor)
        if tuple(np.shape(array)) != t.shape:
            raise ValueError(f"{t.name} has shape {t.shape}, got an array of shape {np.shape(array)}")
        place = loaded.current[t] ^ 1
        np.copyto(self.device.array(self._host(loaded, t, place), t), array, casting="unsafe")
        loaded.fresh.add(t)

    def read(self, tensor: Tensor, program: str = "TRAIN") -> np.ndarray:
        """A copy of an output as the last step of that program left it on the host."""
        loaded = self.loaded[program]
        return self.device.array(self._host(loaded, tensor), tensor).copy(order="C")

    def get(self, tensor: Tensor) -> np.ndarray:
        """A copy of a carried tensor, in logical order, C-contiguous."""
        return self.homes[tensor].copy(order="C")

    def set(self, tensor: Tensor, array: np.ndarray) -> None:
        """Overwrite a carried tensor between steps."""
        if tuple(np.shape(array)) != tensor.shape:
            raise ValueError(f"{tensor.name} has shape {tensor.shape}, got an array of shape {np.shape(array)}")
        np.copyto(self.homes[tensor], array, casting="same_kind")

    def close(self) -> None:
        """End the copy threads. The arena goes with the object."""
        if not self._closed:
            self._closed = True
            for semaphore in self._begin.values():
                semaphore.release()
            for thread in self._threads:
                thread.join()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refilled(schedule: Schedule, i: int) -> bool:
    """Whether bytes freed by instruction i may be written by a copy back before compute's next op.

    A Free is no event: such a copy waits for the op before it, not for the moment at which freed bytes are poisoned,
    and so it must not be poisoned under."""
    freed = schedule.instructions[i]
    assert isinstance(freed, Free)
    lo = schedule.offset[freed.buffer]
    hi = lo + freed.buffer.nbytes
    for k in range(i + 1, len(schedule.instructions)):
        x = schedule.instructions[k]
        if isinstance(x, Compute):
            return False
        if isinstance(x, Prefetch):
            at = schedule.offset[x.stay.buffer]
            if at < hi and lo < at + x.stay.tensor.nbytes:
                return True
    return False
