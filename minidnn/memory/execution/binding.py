"""Binding: the instructions of a schedule become calls on addresses, once, before the first step.

A call is a kernel, or a copy. Copies go between the device and the host, and between the host's ring and the store or
the disk behind it. Addresses come from the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from minidnn.memory.execution.compression import compress, decompress
from minidnn.memory.execution.device import Device
from minidnn.memory.execution.disk import DiskFile
from minidnn.memory.execution.poison import fillable
from minidnn.memory.execution.runtime import BoundCall, Call, Runtime
from minidnn.memory.execution.threads import page_aligned
from minidnn.memory.schedule import (
    Alloc,
    Arrangement,
    Compute,
    Fetch,
    Free,
    Instruction,
    Offload,
    Prefetch,
    Residency,
    Schedule,
    StagingSlot,
    Stash,
    Wait,
    aligned,
    stored_bound,
)
from minidnn.program import Tensor
from minidnn.ranks.engine import Engine


@dataclass
class Loaded:
    """A schedule bound to addresses, once for each of the two places of its inputs, so that a step follows no pointer.
    The places are on the device for double-buffered inputs, else on the host; both count if the host runs ops that read
    double-buffered inputs.

    A step reads one place while the next batch is written to the other. The bindings differ in nothing else.
    """

    schedule: Schedule
    host_base: int
    bound: dict[tuple[int, int], Any] = field(default_factory=dict)  # (place on host, on device) -> the binding
    place: int = 0  # 0 or 1: the place on the host that the last step's inputs are in
    fresh: set[Tensor] = field(default_factory=set)  # inputs whose other place holds the next batch
    landings: dict[tuple[int, int], list[Call]] = field(default_factory=dict)  # (place on host, on device) -> copies
    all_gathers: bool = False  # whether it makes the weights whole
    learns: bool = False  # whether it changes shards of them


class Binder:
    """Binds the schedules of one arrangement to the memory and the kernels of one device.

    store: the host's bytes behind the ring
    """

    def __init__(
        self, device: Device, runtime: Runtime, arrangement: Arrangement, engine: Engine | None, disk: DiskFile | None
    ) -> None:
        self.device, self.runtime, self.engine, self.disk = device, runtime, engine, disk
        self._arrangement = arrangement
        self.store = page_aligned(arrangement.store)

    def attempt(self, schedule: Schedule, x: Compute) -> None:
        """Run one op's instruction alone. Raises KernelFailed if the device refuses it."""
        self.runtime.attempt(self._prepared(schedule, x))

    def load(self, schedule: Schedule, host_base: int, debug: bool) -> Loaded:
        """The schedule, bound. `debug`: freed bytes are filled with 0xFF."""
        loaded = Loaded(schedule, host_base)
        double_buffered = schedule.program.double_buffered
        every: dict[tuple[int, int], list[BoundCall]] = {places: [] for places in _places(schedule)}
        filled = fillable(schedule) if debug else set()
        for i, x in enumerate(schedule.instructions):
            if isinstance(x, (Alloc, Free)) and i not in filled:
                continue
            alike = not _uses_inputs(schedule, x)
            one = self._bound(loaded, i, x, 0, 0) if alike else None
            for places, bound in every.items():
                bound.append(one or self._bound(loaded, i, x, *places))
        outputs_after = _last_output(schedule)
        loaded.bound = {places: self.runtime.bind(bound, outputs_after) for places, bound in every.items()}
        persistent = [
            b.residencies[0] for b in schedule.buffers if b.persistent and b.residencies[0].tensor in double_buffered
        ]
        for host, place in product((0, 1), (0, 1)):
            loaded.landings[host, place] = [
                self.runtime.landing(self.on_device(schedule, s, place), self.on_host(loaded, s.tensor, host))
                for s in persistent
            ]
        return loaded

    def _bound(self, loaded: Loaded, i: int, x: Instruction, host: int, place: int) -> BoundCall:
        """Instruction i, where inputs are in these places on the host and on the device."""
        schedule = loaded.schedule
        if isinstance(x, Wait):
            return BoundCall(i, x.stream, on=x.on)
        if isinstance(x, (Alloc, Free)):
            at = schedule.offset[x.buffer]
            return BoundCall(i, "compute", self.runtime.fill(self.runtime.arena[at : at + x.buffer.nbytes], 0xFF))
        if isinstance(x, (Stash, Fetch)):
            return BoundCall(i, x.stream, self._stored(schedule, x))
        if isinstance(x, (Offload, Prefetch)):
            return BoundCall(i, x.stream, self._copy(loaded, x, host))
        if x.stream == "host":
            return BoundCall(i, x.stream, self._by_host(loaded, x, host))
        return BoundCall(i, x.stream, self._prepared(schedule, x, place))

    def _by_host(self, loaded: Loaded, x: Compute, place: int) -> Call:
        """The call of an op that the host runs on its own bytes."""
        inputs = loaded.schedule.program.inputs
        arrays = {t: self.on_host(loaded, t, place if t in inputs else 0) for t in x.op.tensors}
        views = {t: self.device.array(array, t) for t, array in arrays.items()}
        return self.device.prepare_by_host(x.op, x.algorithm, views)

    def _prepared(self, schedule: Schedule, x: Compute, place: int = 0) -> Call:
        if x.op.on_net:
            assert self.engine is not None
            return self.engine.prepare(
                x.op, *([self.on_device(schedule, s) for s in some] for some in (x.reads, x.writes))
            )
        residencies = *x.reads, *x.writes
        views = {s.tensor: self.device.view(self.on_device(schedule, s, place), s.tensor) for s in residencies}
        workspace = self.on_device(schedule, x.workspace) if x.workspace else self.runtime.arena[0:0]
        return self.device.prepare(x.op, x.algorithm, views, workspace)

    def _copy(self, loaded: Loaded, x: Offload | Prefetch, place: int = 0) -> Call:
        device, t = self.on_device(loaded.schedule, x.residency), x.residency.tensor
        place = place if t in loaded.schedule.program.inputs else 0
        host = self.on_host(loaded, t, place) if x.staging_slot is None else self._staging_slot(x.staging_slot)
        if isinstance(x, Offload):
            return self.runtime.copy(host, device, x.stream)
        return self.runtime.copy(device, host, x.stream)

    def _stored(self, schedule: Schedule, x: Stash | Fetch) -> Call:
        """The call that copies a tensor from the ring to the store, or back."""
        t, ring = x.staging_slot.tensor, self._staging_slot(x.staging_slot)
        assert schedule.staging is not None
        if t in schedule.disk_offset:
            assert self.disk is not None
            move = self.disk.write if isinstance(x, Stash) else self.disk.read
            return partial(move, self._ring(x.staging_slot), schedule.disk_offset[t], t.name)
        at = schedule.store_offset[t]
        store = self.store[at : at + stored_bound(t, schedule.staging.compress)]
        if schedule.staging.compress:
            return (
                partial(compress, ring, store, t.itemsize)
                if isinstance(x, Stash)
                else partial(decompress, store, ring, t.itemsize)
            )
        return partial(np.copyto, store, ring) if isinstance(x, Stash) else partial(np.copyto, ring, store)

    def _staging_slot(self, slot: StagingSlot) -> np.ndarray:
        """The tensor's bytes in the ring."""
        return self._ring(slot)[: slot.tensor.nbytes]

    @property
    def ring(self) -> np.ndarray:
        """The bytes of the host through which stashed tensors pass."""
        return self.runtime.host[self._arrangement.host - self._arrangement.ring : self._arrangement.host]

    def _ring(self, slot: StagingSlot) -> np.ndarray:
        """The staging slot's bytes in the ring."""
        return self.ring[slot.at : slot.at + slot.nbytes]

    def on_device(self, schedule: Schedule, residency: Residency, place: int = 0) -> Any:
        """The residency's bytes in the arena; of a double-buffered input, its `place`, 0 or 1."""
        double_buffered = residency.tensor in schedule.program.double_buffered
        at = schedule.offset[residency.buffer] + (place * aligned(residency.tensor.nbytes) if double_buffered else 0)
        return self.runtime.arena[at : at + residency.tensor.nbytes]

    def on_host(self, loaded: Loaded, t: Tensor, place: int = 0) -> np.ndarray:
        """The tensor's bytes on the host; of an input, in its `place`, 0 or 1."""
        base = 0 if t in loaded.schedule.program.host_resident else loaded.host_base
        at = base + loaded.schedule.host_offset[t] + place * aligned(t.nbytes)
        return self.runtime.host[at : at + t.nbytes]


def _places(schedule: Schedule) -> list[tuple[int, int]]:
    """The places on the host and on the device that inputs may have in a step: a binding for each."""
    inputs, double_buffered = set(schedule.program.inputs), schedule.program.double_buffered
    by_host = any(op in schedule.plan.host_ops and not inputs.isdisjoint(op.reads) for op in schedule.plan.order)
    return list(
        product((0, 1) if by_host or (inputs and not double_buffered) else (0,), (0, 1) if double_buffered else (0,))
    )


def _uses_inputs(schedule: Schedule, x: Instruction) -> bool:
    """Whether it depends on the places of inputs."""
    if isinstance(x, (Offload, Prefetch)):
        return x.residency.tensor in schedule.program.inputs
    return isinstance(x, Compute) and not set(schedule.program.inputs).isdisjoint(x.op.reads)


def _last_output(schedule: Schedule) -> int | None:
    """The index of the instruction after which all outputs are on the host; None: there are no outputs."""
    outputs = set(schedule.program.outputs)
    copies = [
        i for i, x in enumerate(schedule.instructions) if isinstance(x, Offload) and x.residency.tensor in outputs
    ]
    return copies[-1] if copies else None
