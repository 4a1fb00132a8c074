"""What carries tensors between a device and the host while a step runs.

On a CPU, "the device" is PyTorch's own memory, and "the host" is memory beside it, or a disk. Copies then run one after
the other with the ops.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from minidnn.memory.execution.disk import DiskFile
from minidnn.memory.execution.threads import page_aligned
from minidnn.memory.schedule import (
    BLOCK,
    Fetch,
    Instruction,
    Offload,
    Prefetch,
    Schedule,
    StagingSlot,
    Stash,
    aligned,
)
from minidnn.program import Tensor
from minidnn.torch.calls import Layout
from minidnn.torch.installed import torch_module

if TYPE_CHECKING:
    import torch

Copying = Callable[[np.ndarray, np.ndarray], None]


class Runtime(Protocol):
    """What carries tensors between the device and the host. Each method prepares one instruction."""

    def offload(self, x: Offload, layout: Layout) -> Callable[[torch.Tensor], None]: ...
    def prefetch(self, x: Prefetch, layout: Layout) -> Callable[[], torch.Tensor]: ...
    def stash(self, x: Stash) -> Callable[[], None]: ...
    def fetch(self, x: Fetch) -> Callable[[], None]: ...
    def wait(self, i: int, x: Instruction) -> Callable[[], None] | None:
        """Makes a stream wait; None where instructions run one after the other anyway."""
        ...

    def mark(self, i: int, x: Instruction) -> Callable[[], None] | None:
        """Marks the end of an instruction that others wait for; None likewise."""
        ...

    def edges(self) -> tuple[Callable[[], None], Callable[[], None]] | None:
        """What a step begins with, and what it ends with, however it ends; None: nothing."""
        ...

    def random_state(self) -> tuple[Callable[[Any], Any], Callable[[Any, Any], None]]:
        """Functions that read the states of some generators, and set them; of none: the device's own."""
        ...


class HostMemory:
    """The host's memory of one schedule, and the disk behind it.

    pinned: the places of tensors that leave the device, and behind them the ring
    store:  ordinary memory
    """

    def __init__(self, schedule: Schedule, disk: DiskFile | None = None, copying: Copying = np.copyto) -> None:
        """copying: copies one array of bytes to another."""
        self.schedule, self.disk, self._copying = schedule, disk, copying
        self._behind = aligned(schedule.host_bytes, BLOCK)
        self.pinned = page_aligned(self._behind + schedule.ring)
        self.store = page_aligned(schedule.store_bytes)

    def stash(self, x: Stash) -> Callable[[], None]:
        ring, t = self._of_ring(x.staging_slot), x.staging_slot.tensor
        if t in self.schedule.disk_offset:
            assert self.disk is not None
            disk, at = self.disk, self.schedule.disk_offset[t]
            return lambda: disk.write(ring, at, t.name)
        return partial(self._copying, self._of_store(t), ring[: t.nbytes])

    def fetch(self, x: Fetch) -> Callable[[], None]:
        ring, t = self._of_ring(x.staging_slot), x.staging_slot.tensor
        if t in self.schedule.disk_offset:
            assert self.disk is not None
            disk, at = self.disk, self.schedule.disk_offset[t]
            return lambda: disk.read(ring, at, t.name)
        return partial(self._copying, ring[: t.nbytes], self._of_store(t))

    def _place(self, t: Tensor, slot: StagingSlot | None, dtype: torch.dtype) -> torch.Tensor:
        """The tensor's bytes in pinned memory, as one row of elements."""
        at = self.schedule.host_offset[t] if slot is None else self._behind + slot.at
        return torch_module().from_numpy(self.pinned[at : at + t.nbytes]).view(dtype)

    def _of_ring(self, slot: StagingSlot) -> np.ndarray:
        at = self._behind + slot.at
        return self.pinned[at : at + slot.nbytes]

    def _of_store(self, t: Tensor) -> np.ndarray:
        at = self.schedule.store_offset[t]
        return self.store[at : at + t.nbytes]


class OnCPU(HostMemory):
    """Copies and ops run one after the other, in the calling thread."""

    def offload(self, x: Offload, layout: Layout) -> Callable[[torch.Tensor], None]:
        place = self._place(x.residency.tensor, x.staging_slot, layout.dtype)
        count = place.numel()
        flat = torch_module().as_strided

        def copy(source: torch.Tensor) -> None:
            place.copy_(flat(source, (count,), (1,), 0))

        return copy

    def prefetch(self, x: Prefetch, layout: Layout) -> Callable[[], torch.Tensor]:
        torch = torch_module()
        place = self._place(x.residency.tensor, x.staging_slot, layout.dtype)
        empty, strided = torch.empty_like, torch.as_strided
        size, stride, offset = layout.size, layout.stride, layout.offset

        def copy() -> Any:
            return strided(empty(place).copy_(place), size, stride, offset)

        return copy

    def wait(self, i: int, x: Instruction) -> None:
        return None

    def mark(self, i: int, x: Instruction) -> None:
        return None

    def edges(self) -> None:
        return None

    def random_state(self) -> tuple[Callable[[Any], Any], Callable[[Any, Any], None]]:
        torch = torch_module()
        default = (torch.default_generator,)

        def read(generators: Any) -> Any:  # copies, outside of PyTorch's memory
            return [generator.get_state().numpy().copy() for generator in generators or default]

        def set_(generators: Any, states: Any) -> None:
            for generator, state in zip(generators or default, states, strict=True):
                generator.set_state(torch.from_numpy(state))

        return read, set_
