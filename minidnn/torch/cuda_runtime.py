"""What carries tensors between a GPU and the host: streams beside PyTorch's current one, and page-locked memory.

Compute is the stream that is current where a step runs. Copies have two streams of their own, "out" and "in". A wait of
the schedule becomes a wait of a stream for an event; events are recorded only where a wait names them, and made once.

Without a store behind the ring, the calling thread enqueues everything. With one, four lines (lines.py) do what belongs
to their stream: those of "store" and "load" move bytes and wait for events, those of "out" and "in" enqueue copies. So
the calling thread waits for the host only where the plan makes compute wait for a copy that the host has not fed yet.

Why no bytes are used by two at once, though PyTorch's allocator knows of the compute stream alone:

- Bytes are given back where the schedule frees them (`del`), in the order in which the calling thread goes. Before a
  Free, compute has waited for all copies out of these bytes (Lowering.free), and an arrival for the copy in. A line
  gives a tensor up before it says that its copy is enqueued, and compute's wait is for that, too.
- Whatever compute writes next comes later on its stream, so it comes after all of them.
- A copy in writes bytes that were allocated at its place in the schedule. Its stream waits for compute's last op before
  it, and for the last copy out whose bytes were freed (Lowering.former_users). An op's event is recorded behind all of
  its calls, so its scratch counts, too. That of the loss is recorded behind the `yield`, so all that the caller did
  with the loss counts. What the caller did before the step comes before the step's first event.
- A step ends with compute's wait for both copy streams, also if it is left half-way or fails. So the next one, and all
  that the caller does between, may take any bytes, the ring's and the host's too.

`cuda` stands for torch.cuda. Not one line here has run on a GPU yet: tests run it on an imitation that checks the order
of all accesses (tests/torch/imitation.py).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from minidnn.errors import Failed
from minidnn.memory.execution.disk import DiskFile
from minidnn.memory.schedule import (
    Compute,
    Fetch,
    Instruction,
    Offload,
    Prefetch,
    Schedule,
    Stash,
    Stream,
    Wait,
)
from minidnn.sizes import text
from minidnn.torch.calls import Layout
from minidnn.torch.installed import torch_module
from minidnn.torch.lines import Lines, Signal
from minidnn.torch.runtime import Copying, HostMemory

if TYPE_CHECKING:
    import torch

COPIES: tuple[Stream, ...] = ("out", "in")
BY_LINES: tuple[Stream, ...] = (*COPIES, "store", "load")


class OnCUDA(HostMemory):
    """The streams and the host's memory of one schedule on a GPU."""

    def __init__(
        self,
        schedule: Schedule,
        device: torch.device,
        disk: DiskFile | None = None,
        cuda: Any = None,
        copying: Copying = np.copyto,
        lines: Callable[[Iterable[str]], Lines] = Lines,
    ) -> None:
        """Raises Failed where the host's memory cannot be page-locked."""
        super().__init__(schedule, disk, copying)
        self.device, self.cuda = device, cuda or torch_module("cuda")
        self.streams = {s: self.cuda.Stream(device=device) for s in COPIES}
        self._lock()
        instructions = schedule.instructions
        awaited = sorted({x.on for x in instructions if isinstance(x, Wait)})
        self.by_lines = any(isinstance(x, Stash | Fetch) for x in instructions)
        self.lines = lines(BY_LINES if self.by_lines else ())
        self.events = {i: self.cuda.Event() for i in awaited if not isinstance(instructions[i], Stash | Fetch)}
        self.signals: dict[int, Signal] = {
            i: self.lines.signal() for i in awaited if self.by_lines and not isinstance(instructions[i], Compute)
        }
        self._edge = self.cuda.Event()
        self._ends = {s: self.cuda.Event() for s in COPIES}
        self.split = 0
        self._whole: OnCUDA | None = None  # whose memory this one uses

    def for_graph(self, split: int) -> OnCUDA:
        """This runtime for a capture: with the same streams and memory of the host, and events of its own. The loss is
        instruction number `split`; what follows is a graph of its own, which begins when the first one has ended."""
        assert not self.by_lines
        result = copy(self)
        result.split, result._whole = split, self
        result.events = {i: self.cuda.Event() for i in self.events}
        result._edge, result._ends = self.cuda.Event(), {s: self.cuda.Event() for s in COPIES}
        return result

    def _lock(self) -> None:
        """Page-lock the host's memory. PyTorch's own pinned memory would take a power of two of bytes."""
        if not len(self.pinned):
            return
        runtime, address = self.cuda.cudart(), self.pinned.ctypes.data
        error = int(runtime.cudaHostRegister(address, len(self.pinned), 0))
        if error:
            raise Failed(
                f"{text(len(self.pinned))} of the host's memory cannot be page-locked (CUDA's error {error}): give a "
                "smaller host_ring or host_budget, or allow more (ulimit -l)"
            )
        weakref.finalize(self, _unlock, runtime, self.pinned, list(self.streams.values())).atexit = False

    def compute(self) -> Any:
        """The stream of the ops: the current one."""
        return self.cuda.current_stream(self.device)

    # ---- copies

    def offload(self, x: Offload, layout: Layout) -> Callable[[torch.Tensor], None]:
        place = self._place(x.residency.tensor, x.staging_slot, layout.dtype)
        count, flat = place.numel(), torch_module().as_strided
        within = partial(self.cuda.stream, self.streams["out"])

        def leave(source: Any) -> None:
            with within():
                place.copy_(flat(source, (count,), (1,), 0), non_blocking=True)

        return partial(self.lines.put, "out", leave) if self.by_lines else leave

    def prefetch(self, x: Prefetch, layout: Layout) -> Callable[[], torch.Tensor]:
        torch = torch_module()
        place = self._place(x.residency.tensor, x.staging_slot, layout.dtype)
        within, strided = partial(self.cuda.stream, self.streams["in"]), torch.as_strided
        empty = partial(torch.empty, place.shape, dtype=layout.dtype, device=self.device)
        size, stride, offset = layout.size, layout.stride, layout.offset
        put = partial(self.lines.put, "in") if self.by_lines else None

        def fill(target: Any) -> None:
            with within():
                target.copy_(place, non_blocking=True)

        def come() -> Any:
            target = empty()  # of compute's stream, which frees it
            if put is None:
                fill(target)
            else:
                put(fill, target)
            return strided(target, size, stride, offset)

        return come

    def stash(self, x: Stash) -> Callable[[], None]:
        return partial(self.lines.put, "store", super().stash(x))

    def fetch(self, x: Fetch) -> Callable[[], None]:
        return partial(self.lines.put, "load", super().fetch(x))

    # ---- order

    def wait(self, i: int, x: Instruction) -> Callable[[], None] | None:
        assert isinstance(x, Wait)
        if x.on < self.split <= i:
            return None
        call = self._waiting(x)
        if self.by_lines and x.stream in BY_LINES:
            return partial(self.lines.put, x.stream, call)
        return call

    def _waiting(self, x: Wait) -> Callable[[], None]:
        """What waits, in the thread of the stream that waits."""
        signal, event = self.signals.get(x.on), self.events.get(x.on)
        stream = self.streams.get(x.stream)

        def call() -> None:
            if signal is not None:
                signal.wait()
            if event is None:
                return
            if stream is not None:
                stream.wait_event(event)
            elif x.stream == "compute":
                self.compute().wait_event(event)
            else:
                event.synchronize()

        return call

    def mark(self, i: int, x: Instruction) -> Callable[[], None] | None:
        signal, event = self.signals.get(i), self.events.get(i)
        if signal is None and event is None:
            return None
        if isinstance(x, Compute):
            assert event is not None
            return lambda: event.record(self.compute())
        assert isinstance(x, Offload | Prefetch | Stash | Fetch)
        stream = self.streams.get(x.stream)

        def call() -> None:
            if event is not None:
                event.record(stream)
            if signal is not None:
                signal.set()

        return partial(self.lines.put, x.stream, call) if self.by_lines else call

    def edges(self) -> tuple[Callable[[], None], Callable[[], None]]:
        return self.begin, self.end

    def begin(self) -> None:
        """Make the copy streams wait for all that the compute stream has been given so far."""
        self.lines.begin()
        self._edge.record(self.compute())
        for stream in self.streams.values():
            stream.wait_event(self._edge)

    def end(self) -> None:
        """Make the compute stream wait for all copies. Raises what a thread of the host has."""
        try:
            self.lines.end()
        finally:
            for s, stream in self.streams.items():
                self._ends[s].record(stream)
                self.compute().wait_event(self._ends[s])

    # ---- random numbers

    def random_state(self) -> tuple[Callable[[Any], Any], Callable[[Any, Any], None]]:
        """Of a GPU's generator: its seed and its offset, which the host knows without asking the GPU."""
        index = self.device.index if self.device.index is not None else self.cuda.current_device()
        if not self.cuda.default_generators:
            self.cuda.init()
        default = (self.cuda.default_generators[index],)

        def read(generators: Any) -> Any:
            return [_state(generator) for generator in generators or default]

        def put(generators: Any, states: Any) -> None:
            for generator, state in zip(generators or default, states, strict=True):
                _set_state(generator, state)

        return read, put


def _state(generator: Any) -> Any:
    if generator.device.type == "cpu":  # a copy, as of one beside the device's own
        return generator.get_state().numpy().copy()
    return generator.initial_seed(), generator.get_offset()


def _set_state(generator: Any, state: Any) -> None:
    if generator.device.type == "cpu":
        generator.set_state(torch_module().from_numpy(state))
        return
    seed, offset = state
    if generator.initial_seed() != seed:
        generator.manual_seed(seed)
    generator.set_offset(offset)


def _unlock(runtime: Any, pinned: np.ndarray, streams: list[Any]) -> None:
    for stream in streams:
        stream.synchronize()
    runtime.cudaHostUnregister(pinned.ctypes.data)
