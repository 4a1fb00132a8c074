"""The executor: a schedule's instructions are bound to a device's kernels once (binding.py), then replayed each step.

The machine is handed a device (backends/). The device provides kernels and array layouts. If it has memory and streams
of its own, it also provides a runtime (memory/execution/runtime.py). Addresses and waits come from the schedule. The
arena is one allocation, the host's part another. Nothing is allocated, looked up or inferred in a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minidnn.errors import Failed, InvalidInput
from minidnn.formats import floating
from minidnn.memory.execution.binding import Binder, Loaded
from minidnn.memory.execution.compression import stored_bytes
from minidnn.memory.execution.device import Device
from minidnn.memory.execution.disk import DiskFailed, DiskFile, NoDisk, StateLost
from minidnn.memory.execution.runtime import BoundCall
from minidnn.memory.execution.trace import Trace, traced
from minidnn.memory.execution.trial import runnable
from minidnn.memory.execution.undo import Undo
from minidnn.memory.schedule import Arrangement, Compute, Schedule, changed
from minidnn.program import Op, Role, Tensor
from minidnn.ranks.engine import Engine
from minidnn.ranks.shards import SHARD
from minidnn.spoken import option


class NotFinite(Failed, ArithmeticError):
    """An op wrote a value that is not finite."""

    def __init__(self, op: Op, tensor: Tensor) -> None:
        super().__init__(f"{op.name} wrote a value into {tensor.name} that is not finite")
        self.op, self.tensor = op, tensor


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
        if arrangement.on_peers:
            raise InvalidInput(
                "the plan puts tensors on a peer, which is simulated alone: plan without peers to run it"
            )
        if arrangement.disk:
            if disk is None:
                raise NoDisk("the plan puts tensors on a disk: name a folder on it, disk=PATH")
            self.disk = DiskFile(disk, arrangement.on_disk)
        try:
            self.runtime = device.runtime(arena, arrangement.host, delays, seed)
        except BaseException:
            self._close_disk()
            raise
        self.binder = Binder(device, self.runtime, arrangement, engine, self.disk)
        self.persistent: dict[Tensor, Any] = {}  # {persistent tensor: its bytes} in the arena; once closed, on the host
        self.host_resident: dict[Tensor, np.ndarray] = {}  # {host-resident tensor: its bytes}
        self._undo: Undo | None = None  # where a step may fail
        self._closed = False
        self.shards: dict[Tensor, Tensor] = {}  # {weight: this rank's shard of it}, among several ranks
        self._gathers: dict[str, BoundCall] = {}  # make the weights whole
        self._gathering: Any = None  # these, bound by the runtime
        self._stale = False  # whether a step has changed shards since
        self.loaded: dict[str, Loaded] = {}
        # Programs share the places of double-buffered inputs on the device. So steps take them in turn, whatever their
        # program.
        self._turn = 0  # 0 or 1: the place on the device that the last step with double-buffered inputs read
        self._landed: Loaded | None = None  # the program whose present inputs are in that place
        try:
            device.compile(
                (x.op, x.algorithm)
                for schedule in arrangement.schedules.values()
                for x in schedule.instructions
                if isinstance(x, Compute) and x.stream == "compute"
            )
            self.arrangement = arrangement = runnable(device, arrangement, self.binder.attempt)
            if debug:
                self.runtime.run(self.runtime.bind([BoundCall(0, "compute", self.runtime.fill(self.arena, 0xFF))]))
            bases = arrangement.host_bases()
            for name, schedule in arrangement.schedules.items():
                self.loaded[name] = self._load(schedule, bases[name])
            if self.disk is not None:
                tensors = changed(arrangement.schedules.values())
                self._undo = Undo(self.disk, arrangement.disk, self.binder.ring, tensors)
        except BaseException:
            self.close()
            raise

    @property
    def arena(self) -> Any:
        return self.runtime.arena

    def _load(self, schedule: Schedule, host_base: int) -> Loaded:
        for b in schedule.buffers:
            if b.persistent and b.residencies[0].tensor not in schedule.program.double_buffered:
                self.persistent[b.residencies[0].tensor] = self.binder.on_device(schedule, b.residencies[0])
        loaded = self.binder.load(schedule, host_base, self.debug)
        self.host_resident |= {t: self.binder.on_host(loaded, t) for t in schedule.program.host_resident}
        for op in schedule.program.ops:
            if op.on_net and {*op.reads, *op.writes} <= self.persistent.keys():
                assert self.engine is not None
                ends = ([self.persistent[t] for t in some] for some in (op.reads, op.writes))
                self._gathers[op.name] = BoundCall(len(self._gathers), "net", self.engine.prepare(op, *ends))
                loaded.all_gathers = True
                self.shards.update(zip(op.writes, op.reads, strict=True))
        written = {t for op in schedule.program.ops for t in op.writes}
        loaded.learns = any(t.role is Role.PARAM and t.name.endswith(SHARD) for t in written)
        return loaded

    def stored(self, program: str) -> dict[Tensor, int]:
        """{tensor: bytes that it took in the store in the last step}. That step must have run this program."""
        self.settle()
        schedule = self.loaded[program].schedule
        if schedule.staging is None or not schedule.staging.compress:
            return {t: t.nbytes for t in schedule.store_offset}
        return {
            t: stored_bytes(self.binder.store[at:], t.nbytes, t.itemsize) for t, at in schedule.store_offset.items()
        }

    # ---- running

    def step(
        self,
        program: str,
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
        loaded = self._begun(program)
        if loaded.fresh and not again:
            self._swap_inputs(loaded)
        if meanwhile is not None:
            meanwhile()
        bound = self._with_inputs(loaded)
        if trace:
            return traced(loaded.schedule, *self.runtime.run_timed(bound))
        after: Callable[[int], object] | None = None
        if check:
            after = partial(self._check, loaded.schedule)
        elif observe is not None:
            after = partial(self._show, loaded.schedule, observe)
        self.runtime.run(bound, after=after)
        return None

    def launch(self, program: str, meanwhile: Callable[[], object] | None = None) -> None:
        """Like `step`, but returns once the *previous* step has ended; this one may still be running.

        At most one step is in flight. So the host launches the next step while this one runs, and a device with its own
        streams never waits for the host.

        Outputs leave long before a step ends, since losses are known when the backward pass begins. `read` waits for
        them alone. All other methods that use values of the device, and `settle`, wait for the whole step. They raise
        its error, if it has failed.

        meanwhile: called once the previous step has ended, whose inputs lay where the next ones are to be written
        """
        loaded = self._begun(program)
        if loaded.fresh:
            self._swap_inputs(loaded)
        self.runtime.launch(self._with_inputs(loaded), meanwhile)

    def _begun(self, program: str) -> Loaded:
        """The program, whose step is about to begin. One that does not make the weights whole finds them so."""
        loaded = self.loaded[program]
        if self.shards:
            if not loaded.all_gathers:
                self.all_gather()
            self._stale = loaded.learns or (self._stale and not loaded.all_gathers)
        return loaded

    def settle(self) -> None:
        """Return when no step is in flight. Raises the error of a step that has failed."""
        self.runtime.settle()

    def _swap_inputs(self, loaded: Loaded) -> None:
        """Switch to the inputs' other place. Inputs that were not written keep their values."""
        for t in loaded.schedule.program.inputs:
            if t not in loaded.fresh:
                self.settle()  # a step in flight may copy an input out to this place
                now, new = (self.binder.on_host(loaded, t, place) for place in (loaded.place, loaded.place ^ 1))
                np.copyto(new, now)
        loaded.place ^= 1
        loaded.fresh.clear()
        if self._landed is loaded:
            self._landed = None  # the device has the inputs of its last step

    def _with_inputs(self, loaded: Loaded) -> Any:
        """The binding of the next step, whose double-buffered inputs, if any, are on their way to the device.

        They go to the place that the last step did not read, since that step may still be running. The step before it
        has ended."""
        if not loaded.schedule.program.double_buffered:
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
                yield x.op, s.tensor, self.device.array(self.runtime.read(self.binder.on_device(schedule, s)), s.tensor)

    def _check(self, schedule: Schedule, i: int) -> None:
        for op, tensor, values in self._results(schedule, i):
            if not np.isfinite(values).all():
                raise NotFinite(op, tensor)

    def _show(self, schedule: Schedule, observe: Callable[[Tensor, np.ndarray], object], i: int) -> None:
        for _, tensor, values in self._results(schedule, i):
            observe(tensor, values)

    # ---- values

    def write(self, tensor: Tensor, array: np.ndarray, program: str) -> None:
        """Write an input of the next step to the host, in the device's layout. May run during a step.

        Raises ValueError if the shape differs. Values are converted to the tensor's dtype.
        """
        loaded = self.loaded[program]
        t = next(t for t in loaded.schedule.program.inputs if t == tensor)
        if tuple(np.shape(array)) != t.shape:
            raise ValueError(f"{t.name} has shape {t.shape}, got an array of shape {np.shape(array)}")
        _fill(self.device.array(self.binder.on_host(loaded, t, loaded.place ^ 1), t), np.asarray(array))
        loaded.fresh.add(t)

    def read(self, tensor: Tensor, program: str) -> np.ndarray:
        """A copy of an output as the last step of that program left it on the host, in logical order."""
        self.runtime.wait_for_outputs()
        return self.device.array(self.binder.on_host(self.loaded[program], tensor), tensor).copy(order="C")

    def get(self, tensor: Tensor, first: int = 0, last: int | None = None) -> np.ndarray:
        """A copy of a persistent or host-resident tensor, in logical order, C-contiguous; or of its rows (first axis)
        `first` up to `last`, `last` excluded."""
        if tensor in self.shards and not self._closed:
            self.all_gather()
        part = tensor if last is None or not tensor.shape else _rows(tensor, first, last)
        bytes_ = self._bytes_of(part, tensor, first)
        if not self._closed:
            self.settle()
            bytes_ = bytes_ if tensor in self.host_resident else self.runtime.read(bytes_)
        return self.device.array(bytes_, part).copy(order="C")

    def set(self, tensor: Tensor, array: np.ndarray, first: int = 0) -> None:
        """Overwrite a persistent or host-resident tensor, or as many of its rows as the array has from row `first` on,
        between steps."""
        shape, fits = tuple(np.shape(array)), tensor.shape == np.shape(array) and not first
        if not fits and len(shape) == len(tensor.shape) > 0:
            fits = shape[1:] == tensor.shape[1:] and first + shape[0] <= tensor.shape[0]
        if not fits:
            raise ValueError(f"{tensor.name} has shape {tensor.shape}, got an array of shape {shape} from row {first}")
        part = replace(tensor, shape=shape)
        lying = np.empty(part.nbytes, np.uint8)
        np.copyto(self.device.array(lying, part), array, casting="same_kind")
        if tensor in self.host_resident:
            self.settle()
            np.copyto(self._bytes_of(part, tensor, first), lying)
        else:
            self.runtime.write(self._bytes_of(part, tensor, first), lying)
        if tensor in self.shards:
            self._put(self.shards[tensor], self.runtime.read(self.persistent[tensor]))

    # ---- where a step may fail

    def mark(self) -> None:
        """Keep what steps change as it is now, for `back`, if a disk may fail in the middle of a step. Raises
        DiskFailed."""
        if self._undo is not None:
            self.settle()
            self._undo.write(self._read_part)

    def back(self) -> None:
        """Go back to what `mark` has kept. Raises StateLost where it cannot be read."""
        if self._undo is not None:
            try:
                self._undo.read(self._write_part)
            except DiskFailed as error:
                raise StateLost(
                    f"{error}; this loses the weights from before the iteration, so no snapshot is written: continue "
                    f"from the last one ({option('resume', 'latest')})"
                ) from error

    def _read_part(self, t: Tensor, part: slice, to: np.ndarray) -> None:
        np.copyto(
            to, self.host_resident[t][part] if t in self.host_resident else self.runtime.read(self.persistent[t][part])
        )

    def _write_part(self, t: Tensor, part: slice, source: np.ndarray) -> None:
        if t in self.host_resident:
            np.copyto(self.host_resident[t][part], source)
        else:
            self.runtime.write(self.persistent[t][part], source)

    # ---- among several ranks

    def all_gather(self) -> None:
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
        own = self.host_resident[shard] if shard in self.host_resident else self.runtime.read(self.persistent[shard])
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
        if shard in self.host_resident:
            np.copyto(self.host_resident[shard], own)
        else:
            self.runtime.write(self.persistent[shard], own)

    def _bytes_of(self, part: Tensor, tensor: Tensor, first: int) -> Any:
        """The bytes of the rows of a tensor that lives across steps, from `first` on: the first axis is outermost in
        every layout."""
        at = first * (tensor.nbytes // tensor.shape[0]) if first else 0
        bytes_ = self.host_resident[tensor] if tensor in self.host_resident else self.persistent[tensor]
        return bytes_[at : at + part.nbytes]

    def close(self) -> None:
        """End the streams and give the device's memory back. `get` works afterwards, unless the device has broken."""
        if not self._closed:
            self._closed = True
            try:
                self.settle()
            finally:
                broken = self.runtime.broken
                self.persistent = (
                    {} if broken else {t: self.runtime.read(bytes_) for t, bytes_ in self.persistent.items()}
                )
                self.host_resident = (
                    {} if broken else {t: self.runtime.retain(bytes_) for t, bytes_ in self.host_resident.items()}
                )
                self.runtime.close()
                self._close_disk()

    def _close_disk(self) -> None:
        if self.disk is not None:
            self.disk.close()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
