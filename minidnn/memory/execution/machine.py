"""The executor: binds a schedule's instructions to a device's kernels once, then replays them each step.

The machine is handed a device (backends/). The device provides kernels and array layouts. If it has memory and streams
of its own, it also provides a runtime (memory/execution/runtime.py). Addresses and waits come from the schedule. The
arena is one allocation, the host's part another. Nothing is allocated, looked up or inferred in a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from minidnn.errors import Failed
from minidnn.formats import floating
from minidnn.memory.execution.compression import compress, decompress, taken
from minidnn.memory.execution.device import Device
from minidnn.memory.execution.disk import DiskFile, NoDisk
from minidnn.memory.execution.poison import fillable
from minidnn.memory.execution.runtime import Bound, Call, Timed
from minidnn.memory.execution.threads import page_aligned
from minidnn.memory.execution.trace import Span, Trace, awaited, memory_curve, name_of
from minidnn.memory.execution.trial import tried
from minidnn.memory.schedule import (
    Alloc,
    Arrangement,
    Compute,
    Fetch,
    Free,
    Instruction,
    Leg,
    Offload,
    Prefetch,
    Schedule,
    Stash,
    Stay,
    Wait,
    aligned,
    changing,
    stored_bound,
)
from minidnn.program import Op, Role, Tensor
from minidnn.ranks.engine import Engine
from minidnn.ranks.shards import SHARD


class NotFinite(Failed, ArithmeticError):
    """An op wrote a value that is not finite."""

    def __init__(self, op: Op, tensor: Tensor) -> None:
        super().__init__(f"{op.name} wrote a value into {tensor.name} that is not finite")
        self.op, self.tensor = op, tensor


@dataclass
class _Loaded:
    """A schedule bound to addresses, once for each of the two places that inputs have: on the device if they are early,
    else on the host; in both, if the host runs ops that read early inputs.

    A step reads one place while the next batch is written to the other. The bindings differ in nothing else.
    """

    schedule: Schedule
    host_base: int
    bound: dict[tuple[int, int], Any] = field(default_factory=dict)  # (place on host, on device) -> the binding
    place: int = 0  # 0 or 1: the place on the host that the last step's inputs are in
    fresh: set[Tensor] = field(default_factory=set)  # inputs whose other place holds the next batch
    landings: dict[tuple[int, int], list[Call]] = field(default_factory=dict)  # (place on host, on device) -> copies
    gathers: bool = False  # whether it makes the weights whole
    learns: bool = False  # whether it changes shards of them


class Machine:
    """Runs the schedules of one net (TRAIN, ACCUMULATE, TEST) on one device, in one arena.

    Its `arrangement` is the given one, but for algorithms that the device refused to run (memory/execution/trial.py).

    debug:  freed bytes are filled with 0xFF, which is NaN in every float format
    delays: copies are late by up to this many seconds at random, which exposes missing waits
    engine: moves bytes between ranks, where the programs have communications
    disk:   the folder for what the schedules put on a disk
    """

    def __init__(
        self,
        device: Device,
        arrangement: Arrangement,
        debug: bool = False,
        delays: float = 0.0,
        seed: int = 0,
        engine: Engine | None = None,
        disk: Path | None = None,
    ) -> None:
        self.device, self.debug, self.engine = device, debug, engine
        budget = arrangement.budget or 0
        # The budget's bytes are taken at once, used or not. A budget beyond the device's memory limits nothing.
        arena = budget if arrangement.arena <= budget <= device.memory else arrangement.arena
        self.disk: DiskFile | None = None
        if arrangement.disk:
            if disk is None:
                raise NoDisk("the plan puts tensors on a disk: name a folder on it, disk=PATH")
            self.disk = DiskFile(disk, arrangement.disk)
        try:
            self.runtime = device.runtime(arena, arrangement.host, delays, seed)
        except BaseException:
            self._close_disk()
            raise
        self.store, self._undo = page_aligned(arrangement.store), page_aligned(arrangement.undo)
        self.homes: dict[Tensor, Any] = {}  # {carried tensor: its bytes} in the arena; once closed, on the host
        self.hosted: dict[Tensor, np.ndarray] = {}  # {hosted tensor: its bytes}
        self._closed = False
        self.shards: dict[Tensor, Tensor] = {}  # {weight: this rank's shard of it}, among several ranks
        self._gathers: dict[str, Bound] = {}  # make the weights whole
        self._gathering: Any = None  # these, bound by the runtime
        self._stale = False  # whether a step has changed shards since
        self.loaded: dict[str, _Loaded] = {}
        # Programs share the places of early inputs on the device. So steps take them in turn, whatever their program.
        self._turn = 0  # 0 or 1: the place on the device that the last step with early inputs read
        self._landed: _Loaded | None = None  # the program whose present inputs are in that place
        try:
            self.arrangement = arrangement = tried(device, arrangement, self._try)
            if debug:
                self.runtime.run(self.runtime.bind([Bound(0, "compute", self.runtime.fill(self.arena, 0xFF))]))
            bases = arrangement.host_bases()
            for name, schedule in arrangement.schedules.items():
                self.loaded[name] = self._load(schedule, bases[name])
        except BaseException:
            self.close()
            raise

    @property
    def arena(self) -> Any:
        return self.runtime.arena

    def _try(self, schedule: Schedule, x: Compute) -> None:
        self.runtime.attempt(self._prepared(schedule, x, self.arena[0:0]))

    # ---- binding

    def _load(self, schedule: Schedule, host_base: int) -> _Loaded:
        loaded = _Loaded(schedule, host_base)
        for b in schedule.buffers:
            if b.home and b.stays[0].tensor not in schedule.program.early:
                self.homes[b.stays[0].tensor] = self._bytes(schedule, b.stays[0])
        self.hosted |= {t: self._host(loaded, t) for t in schedule.program.hosted}
        for op in schedule.program.ops:
            if op.on_net and {*op.reads, *op.writes} <= self.homes.keys():
                assert self.engine is not None
                ends = ([self.homes[t] for t in some] for some in (op.reads, op.writes))
                self._gathers[op.name] = Bound(len(self._gathers), "net", self.engine.prepare(op, *ends))
                loaded.gathers = True
                self.shards.update(zip(op.writes, op.reads, strict=True))
        changed = {t for op in schedule.program.ops for t in op.writes}
        loaded.learns = any(t.role is Role.PARAM and t.name.endswith(SHARD) for t in changed)
        early = schedule.program.early
        every: dict[tuple[int, int], list[Bound]] = {places: [] for places in _places(schedule)}
        filled = fillable(schedule) if self.debug else set()
        for i, x in enumerate(schedule.instructions):
            if isinstance(x, (Alloc, Free)) and i not in filled:
                continue
            alike = not _uses_inputs(schedule, x)
            one = self._bound(loaded, i, x, 0, 0) if alike else None
            for places, bound in every.items():
                bound.append(one or self._bound(loaded, i, x, *places))
        outputs_after = _last_output(schedule)
        loaded.bound = {places: self.runtime.bind(bound, outputs_after) for places, bound in every.items()}
        at_home = [b.stays[0] for b in schedule.buffers if b.home and b.stays[0].tensor in early]
        for host, place in product((0, 1), (0, 1)):
            loaded.landings[host, place] = [
                self.runtime.landing(self._bytes(schedule, s, place), self._host(loaded, s.tensor, host))
                for s in at_home
            ]
        return loaded

    def _bound(self, loaded: _Loaded, i: int, x: Instruction, host: int, place: int) -> Bound:
        """Instruction i, where inputs are in these places on the host and on the device."""
        schedule = loaded.schedule
        if isinstance(x, Wait):
            return Bound(i, x.stream, on=x.on)
        if isinstance(x, (Alloc, Free)):
            at = schedule.offset[x.buffer]
            return Bound(i, "compute", self.runtime.fill(self.arena[at : at + x.buffer.nbytes], 0xFF))
        if isinstance(x, (Stash, Fetch)):
            return Bound(i, x.stream, self._stored(schedule, x))
        if isinstance(x, (Offload, Prefetch)):
            return Bound(i, x.stream, self._copy(loaded, x, host))
        if x.stream == "host":
            return Bound(i, x.stream, self._by_host(loaded, x, host))
        return Bound(i, x.stream, self._prepared(schedule, x, self.arena[0:0], place))

    def _by_host(self, loaded: _Loaded, x: Compute, place: int) -> Call:
        """The call of an op that the host runs on its own bytes."""
        inputs = loaded.schedule.program.inputs
        arrays = {t: self._host(loaded, t, place if t in inputs else 0) for t in x.op.tensors}
        views = {t: self.device.array(array, t) for t, array in arrays.items()}
        return self.device.prepare_by_host(x.op, x.algorithm, views)

    def _prepared(self, schedule: Schedule, x: Compute, nothing: Any, place: int = 0) -> Call:
        if x.op.on_net:
            assert self.engine is not None
            return self.engine.prepare(
                x.op, *([self._bytes(schedule, s) for s in some] for some in (x.reads, x.writes))
            )
        views = {s.tensor: self.device.view(self._bytes(schedule, s, place), s.tensor) for s in (*x.reads, *x.writes)}
        workspace = self._bytes(schedule, x.workspace) if x.workspace else nothing
        return self.device.prepare(x.op, x.algorithm, views, workspace)

    def _copy(self, loaded: _Loaded, x: Offload | Prefetch, place: int = 0) -> Call:
        device, t = self._bytes(loaded.schedule, x.stay), x.stay.tensor
        place = place if t in loaded.schedule.program.inputs else 0
        host = self._host(loaded, t, place) if x.leg is None else self._leg(x.leg)
        if isinstance(x, Offload):
            return self.runtime.copy(host, device, x.stream)
        return self.runtime.copy(device, host, x.stream)

    def _stored(self, schedule: Schedule, x: Stash | Fetch) -> Call:
        """The call that copies a tensor from the ring to the store, or back."""
        t, ring = x.leg.tensor, self._leg(x.leg)
        assert schedule.staging is not None
        if t in schedule.disk_offset:
            assert self.disk is not None
            move = self.disk.write if isinstance(x, Stash) else self.disk.read
            return partial(move, self._ring(x.leg), schedule.disk_offset[t], t.name)
        at = schedule.store_offset[t]
        store = self.store[at : at + stored_bound(t, schedule.staging.compress)]
        if schedule.staging.compress:
            return (
                partial(compress, ring, store, t.itemsize)
                if isinstance(x, Stash)
                else partial(decompress, store, ring, t.itemsize)
            )
        return partial(np.copyto, store, ring) if isinstance(x, Stash) else partial(np.copyto, ring, store)

    def stored(self, name: str = "TRAIN") -> dict[Tensor, int]:
        """{tensor: bytes that it took in the store in the last step}. That step must have run this program."""
        self.settle()
        schedule = self.loaded[name].schedule
        if schedule.staging is None or not schedule.staging.compress:
            return {t: t.nbytes for t in schedule.store_offset}
        return {t: taken(self.store[at:], t.nbytes, t.itemsize) for t, at in schedule.store_offset.items()}

    def _leg(self, leg: Leg) -> np.ndarray:
        """The tensor's bytes in the ring."""
        return self._ring(leg)[: leg.tensor.nbytes]

    def _ring(self, leg: Leg) -> np.ndarray:
        """The leg's bytes in the ring."""
        at = self.arrangement.host - self.arrangement.ring + leg.at
        return self.runtime.host[at : at + leg.nbytes]

    def _bytes(self, schedule: Schedule, stay: Stay, place: int = 0) -> Any:
        """The stay's bytes in the arena; of an early input, its `place`, 0 or 1."""
        early = stay.tensor in schedule.program.early
        at = schedule.offset[stay.buffer] + (place * aligned(stay.tensor.nbytes) if early else 0)
        return self.arena[at : at + stay.tensor.nbytes]

    def _host(self, loaded: _Loaded, t: Tensor, place: int = 0) -> np.ndarray:
        base = 0 if t in loaded.schedule.program.hosted else loaded.host_base
        at = base + loaded.schedule.host_offset[t] + place * aligned(t.nbytes)
        return self.runtime.host[at : at + t.nbytes]

    # ---- running

    def step(
        self,
        name: str = "TRAIN",
        trace: bool = False,
        check: bool = False,
        again: bool = False,
        observe: Callable[[Tensor, np.ndarray], object] | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> Trace | None:
        """Replay one step of the named program on the inputs written for it; `again`: on the inputs of its last step.

        trace: time every instruction, and return the trace
        check: raise NotFinite at the first op whose float results are not all finite; this leaves the step unfinished
        observe: called with each float result, in logical order, as soon as its op has ended; it may not keep the array
        meanwhile: called once this step's inputs are fixed; it may start a thread that writes the next ones
        """
        self.settle()
        loaded = self._begun(name)
        if loaded.fresh and not again:
            self._swap_inputs(loaded)
        if meanwhile is not None:
            meanwhile()
        bound = self._with_inputs(loaded)
        if trace:
            return _trace(loaded.schedule, *self.runtime.run_timed(bound))
        after: Callable[[int], object] | None = None
        if check:
            after = partial(self._check, loaded.schedule)
        elif observe is not None:
            after = partial(self._show, loaded.schedule, observe)
        self.runtime.run(bound, after=after)
        return None

    def launch(self, name: str = "TRAIN", meanwhile: Callable[[], object] | None = None) -> None:
        """Like `step`, but returns once the *previous* step has ended; this one may still be running.

        At most one step is in flight. So the host launches the next step while this one runs, and a device with its own
        streams never waits for the host.

        Outputs leave long before a step ends, since losses are known when the backward pass begins. `read` waits for
        them alone. All other methods that use values of the device, and `settle`, wait for the whole step. They raise
        its error, if it has failed.

        meanwhile: called once the previous step has ended, whose inputs lay where the next ones are to be written
        """
        loaded = self._begun(name)
        if loaded.fresh:
            self._swap_inputs(loaded)
        self.runtime.launch(self._with_inputs(loaded), meanwhile)

    def _begun(self, name: str) -> _Loaded:
        """The program, whose step is about to begin. One that does not make the weights whole finds them so."""
        loaded = self.loaded[name]
        if self.shards:
            if not loaded.gathers:
                self.gather()
            self._stale = loaded.learns or (self._stale and not loaded.gathers)
        return loaded

    def settle(self) -> None:
        """Return when no step is in flight. Raises the error of a step that has failed."""
        self.runtime.settle()

    def _swap_inputs(self, loaded: _Loaded) -> None:
        """Switch to the inputs' other place. Inputs that were not written keep their values."""
        for t in loaded.schedule.program.inputs:
            if t not in loaded.fresh:
                self.settle()  # a step in flight may copy an input out to this place
                np.copyto(self._host(loaded, t, loaded.place ^ 1), self._host(loaded, t, loaded.place))
        loaded.place ^= 1
        loaded.fresh.clear()
        if self._landed is loaded:
            self._landed = None  # the device has the inputs of its last step

    def _with_inputs(self, loaded: _Loaded) -> Any:
        """The binding of the next step, whose early inputs, if any, are on their way to the device.

        They go to the place that the last step did not read, since that step may still be running. The step before it
        has ended."""
        if not loaded.schedule.program.early:
            return loaded.bound[loaded.place, 0]
        if self._landed is not loaded:
            self._landed, self._turn = None, self._turn ^ 1
            self.runtime.land(loaded.landings[loaded.place, self._turn])
            self._landed = loaded
        places = loaded.place, self._turn
        return loaded.bound[places if places in loaded.bound else (0, self._turn)]

    def _results(self, schedule: Schedule, i: int) -> Iterator[tuple[Op, Tensor, np.ndarray]]:
        """The float results of the instruction, if it is an op, in logical order."""
        x = schedule.instructions[i]
        if not isinstance(x, Compute):
            return
        for s in x.writes:
            if floating(s.tensor.dtype):
                yield x.op, s.tensor, self.device.array(self.runtime.read(self._bytes(schedule, s)), s.tensor)

    def _check(self, schedule: Schedule, i: int) -> None:
        for op, tensor, values in self._results(schedule, i):
            if not np.isfinite(values).all():
                raise NotFinite(op, tensor)

    def _show(self, schedule: Schedule, observe: Callable[[Tensor, np.ndarray], object], i: int) -> None:
        for _, tensor, values in self._results(schedule, i):
            observe(tensor, values)

    # ---- values

    def write(self, tensor: Tensor, array: np.ndarray, program: str = "TRAIN") -> None:
        """Write an input of the next step to the host, in the device's layout. May run during a step.

        Raises ValueError if the shape differs. Values are converted to the tensor's dtype.
        """
        loaded = self.loaded[program]
        t = next(t for t in loaded.schedule.program.inputs if t == tensor)
        if tuple(np.shape(array)) != t.shape:
            raise ValueError(f"{t.name} has shape {t.shape}, got an array of shape {np.shape(array)}")
        _fill(self.device.array(self._host(loaded, t, loaded.place ^ 1), t), np.asarray(array))
        loaded.fresh.add(t)

    def read(self, tensor: Tensor, program: str = "TRAIN") -> np.ndarray:
        """A copy of an output as the last step of that program left it on the host, in logical order."""
        self.runtime.wait_for_outputs()
        return self.device.array(self._host(self.loaded[program], tensor), tensor).copy(order="C")

    def get(self, tensor: Tensor, first: int = 0, last: int | None = None) -> np.ndarray:
        """A copy of a carried or hosted tensor, in logical order, C-contiguous; or of its rows (first axis) `first` up
        to `last`, `last` excluded."""
        if tensor in self.shards and not self._closed:
            self.gather()
        part = tensor if last is None or not tensor.shape else _rows(tensor, first, last)
        home = self._home(part, tensor, first)
        if not self._closed:
            self.settle()
            home = home if tensor in self.hosted else self.runtime.read(home)
        return self.device.array(home, part).copy(order="C")

    def set(self, tensor: Tensor, array: np.ndarray, first: int = 0) -> None:
        """Overwrite a carried or hosted tensor, or as many of its rows as the array has from row `first` on, between
        steps."""
        shape, fits = tuple(np.shape(array)), tensor.shape == np.shape(array) and not first
        if not fits and len(shape) == len(tensor.shape) > 0:
            fits = shape[1:] == tensor.shape[1:] and first + shape[0] <= tensor.shape[0]
        if not fits:
            raise ValueError(f"{tensor.name} has shape {tensor.shape}, got an array of shape {shape} from row {first}")
        part = replace(tensor, shape=shape)
        lying = np.empty(part.nbytes, np.uint8)
        np.copyto(self.device.array(lying, part), array, casting="same_kind")
        if tensor in self.hosted:
            self.settle()
            np.copyto(self._home(part, tensor, first), lying)
        else:
            self.runtime.write(self._home(part, tensor, first), lying)
        if tensor in self.shards:
            self._put(self.shards[tensor], self.runtime.read(self.homes[tensor]))

    # ---- where a step may fail

    def mark(self) -> None:
        """Keep what steps change as it is now, for `back`, if a disk may fail in the middle of a step."""
        if self._undo.size:
            self.settle()
            for kept, t in self._kept():
                np.copyto(kept, self.hosted[t] if t in self.hosted else self.runtime.read(self.homes[t]))

    def back(self) -> None:
        """Go back to what `mark` has kept."""
        for kept, t in self._kept():
            if t in self.hosted:
                np.copyto(self.hosted[t], kept)
            else:
                self.runtime.write(self.homes[t], kept)

    def _kept(self) -> Iterator[tuple[np.ndarray, Tensor]]:
        """(the place that keeps it, tensor) of each tensor that steps change."""
        at = 0
        for t in dict.fromkeys(t for x in self.loaded.values() for t in changing(x.schedule.program)):
            yield self._undo[at : at + t.nbytes], t
            at += t.nbytes

    # ---- among several ranks

    def gather(self) -> None:
        """Make the weights whole, if steps have changed shards of them. All ranks call it, between the same steps."""
        if self._stale:
            if self._gathering is None:
                self._gathering = self.runtime.bind(list(self._gathers.values()))
            self.runtime.run(self._gathering)
            self._stale = False

    def get_whole(self, shard: Tensor, whole: Tensor) -> np.ndarray:
        """The tensor of which each rank has a shard, in logical order. All ranks call it, between the same steps."""
        assert self.engine is not None
        self.settle()
        own = self.hosted[shard] if shard in self.hosted else self.runtime.read(self.homes[shard])
        lying = self.engine.whole(own, whole.nbytes)
        return self.device.array(lying, whole).copy(order="C")

    def set_whole(self, shard: Tensor, whole: Tensor, array: np.ndarray) -> None:
        """Set this rank's shard of a tensor that has these values, in logical order."""
        lying = np.empty(whole.nbytes, np.uint8)
        np.copyto(self.device.array(lying, whole), array, casting="same_kind")
        self._put(shard, lying)

    def _put(self, shard: Tensor, lying: np.ndarray) -> None:
        """Write this rank's part of these bytes to its shard, and zeros behind it."""
        assert self.engine is not None
        own = np.zeros(shard.nbytes, np.uint8)
        part = lying[self.engine.rank * shard.nbytes :][: shard.nbytes]
        own[: len(part)] = part
        if shard in self.hosted:
            np.copyto(self.hosted[shard], own)
        else:
            self.runtime.write(self.homes[shard], own)

    def _home(self, part: Tensor, tensor: Tensor, first: int) -> Any:
        """The bytes of the rows of a tensor that lives across steps, from `first` on: the first axis is outermost in
        every layout."""
        at = first * (tensor.nbytes // tensor.shape[0]) if first else 0
        home = self.hosted[tensor] if tensor in self.hosted else self.homes[tensor]
        return home[at : at + part.nbytes]

    def close(self) -> None:
        """End the streams and give the device's memory back. `get` works afterwards, unless the device has broken."""
        if not self._closed:
            self._closed = True
            try:
                self.settle()
            finally:
                broken = self.runtime.broken
                self.homes = {} if broken else {t: self.runtime.read(home) for t, home in self.homes.items()}
                self.hosted = {} if broken else {t: home.copy() for t, home in self.hosted.items()}
                self.runtime.close()
                self._close_disk()

    def _close_disk(self) -> None:
        if self.disk is not None:
            self.disk.close()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _places(schedule: Schedule) -> list[tuple[int, int]]:
    """The places on the host and on the device that inputs may have in a step: a binding for each."""
    inputs, early = set(schedule.program.inputs), schedule.program.early
    by_host = any(op in schedule.plan.beside and not inputs.isdisjoint(op.reads) for op in schedule.plan.order)
    return list(product((0, 1) if by_host or (inputs and not early) else (0,), (0, 1) if early else (0,)))


def _uses_inputs(schedule: Schedule, x: Instruction) -> bool:
    """Whether it depends on the places of inputs."""
    if isinstance(x, (Offload, Prefetch)):
        return x.stay.tensor in schedule.program.inputs
    return isinstance(x, Compute) and not set(schedule.program.inputs).isdisjoint(x.op.reads)


def _last_output(schedule: Schedule) -> int | None:
    """The index of the instruction after which all outputs are on the host; None: there are no outputs."""
    outputs = set(schedule.program.outputs)
    copies = [i for i, x in enumerate(schedule.instructions) if isinstance(x, Offload) and x.stay.tensor in outputs]
    return copies[-1] if copies else None


def _rows(tensor: Tensor, first: int, last: int) -> Tensor:
    """A tensor of these rows alone."""
    return replace(tensor, shape=(last - first, *tensor.shape[1:]))


FEW = 4  # channels that an image has at most


def _fill(view: np.ndarray, array: np.ndarray) -> None:
    """Assign `array` to `view[...]`, converted to its type.

    Images are copied channel by channel: if channels lie innermost, NumPy then takes half the time (64 x 3 x 224 x 224:
    17 instead of 37 ms).
    """
    if view.ndim == 4 and 1 < view.shape[1] <= FEW:
        for c in range(view.shape[1]):
            np.copyto(view[:, c], array[:, c], casting="unsafe")
    else:
        np.copyto(view, array, casting="unsafe")


def _trace(schedule: Schedule, raw: Sequence[Timed], seconds: float) -> Trace:
    """The trace of a timed run. Allocs and Frees get the time at which the op before them ended."""
    spans, waits, stall = [], [], 0.0
    finished: dict[int, float] = {}
    for i, stream, start, end in sorted(raw, key=lambda r: (r[0], r[2])):
        x = schedule.instructions[i]
        if isinstance(x, Wait):
            stall += end - start if stream == "compute" else 0.0
            if end > start:
                waits.append(Span(i, stream, awaited(schedule, x), start, end))
        elif isinstance(x, (Compute, Offload, Prefetch, Stash, Fetch)) and i not in finished:
            finished[i] = end
            spans.append(Span(i, stream, name_of(x), start, end))
    moments: list[tuple[int, float]] = []
    now = 0.0
    for i, x in enumerate(schedule.instructions):
        if isinstance(x, Compute) and x.stream == "compute":
            now = finished[i]
        elif isinstance(x, (Alloc, Free)):
            moments.append((i, now))
    memory = memory_curve(schedule, moments)
    return Trace(tuple(spans), seconds, stall, memory, tuple(waits), tuple(moments))
