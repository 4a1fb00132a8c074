"""What a job is planned for: a device of this machine, or a GPU that is simulated from its profile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from minidnn.backends import open_device
from minidnn.costs import Costs, estimate
from minidnn.costs.net import LINK, Link, Network
from minidnn.errors import InvalidInput
from minidnn.formats import InvalidFormat
from minidnn.jobs import gpus
from minidnn.jobs.costs import device_costs
from minidnn.jobs.setting import Setting
from minidnn.memory.execution.device import Device
from minidnn.program import Program
from minidnn.programs.fusion import Fuses, as_cuda
from minidnn.spoken import option

Warn = Callable[[str], object]  # takes a sentence


class Target(Protocol):
    """
    gpu:         the name of the GPU that is simulated; None: a device of this machine runs
    own_memory:  whether it has memory of its own, apart from the host's
    double_buffers: whether training batches may arrive before their step begins
    fuses:       the ops that it has fused kernels for
    host_memory: bytes of the host that plans may use if nobody names a budget
    """

    @property
    def gpu(self) -> str | None: ...
    @property
    def own_memory(self) -> bool: ...
    @property
    def double_buffers(self) -> bool: ...
    @property
    def fuses(self) -> Fuses: ...
    @property
    def host_memory(self) -> int: ...

    def estimates(self) -> Costs:
        """The costs that are the same on every machine, before anything is measured."""
        ...

    def costs(self, programs: Sequence[Program], setting: Setting, warn: Warn) -> Costs:
        """The costs of these programs: `estimates`, or measured ones if the setting asks for them."""
        ...

    def network(self, costs: Costs) -> Network:
        """The network that is assumed between ranks if the setting names none."""
        ...

    def has(self, format: str, programs: Callable[[], Sequence[Program]]) -> bool:
        """Whether it computes in this 16-bit format. programs: makes the programs in that format"""
        ...


@dataclass(frozen=True)
class OnDevice:
    """A device of this machine."""

    device: Device
    gpu: None = None

    @property
    def own_memory(self) -> bool:
        return self.device.own_memory

    @property
    def double_buffers(self) -> bool:
        return self.device.own_memory

    @property
    def fuses(self) -> Fuses:
        return self.device.fuses

    @property
    def host_memory(self) -> int:
        return gpus.host_memory(None)

    def estimates(self) -> Costs:
        return estimate(self.device)

    def costs(self, programs: Sequence[Program], setting: Setting, warn: Warn) -> Costs:
        return device_costs(self.device, programs, setting, warn)

    def network(self, costs: Costs) -> Network:
        return LINK

    def has(self, format: str, programs: Callable[[], Sequence[Program]]) -> bool:
        with suppress(InvalidFormat):
            for op in (op for program in programs() for op in program.ops if not op.on_net):
                self.device.algorithms(op)
            return True
        return False


@dataclass(frozen=True)
class Simulated:
    """A GPU that is simulated. `gpu`: its name, as `gpus.named` gives it."""

    gpu: str
    own_memory: bool = True
    double_buffers: bool = False  # plans for many budgets mean the same
    fuses: Fuses = as_cuda

    @property
    def host_memory(self) -> int:
        return gpus.host_memory(self.gpu)

    def estimates(self) -> Costs:
        return gpus.gpu(self.gpu).costs(self.gpu)

    def costs(self, programs: Sequence[Program], setting: Setting, warn: Warn) -> Costs:
        if setting.measured:
            raise InvalidInput(
                f"{option('costs', 'measured')}: these are this machine's; leave out {option('gpu', self.gpu)}"
            )
        return self.estimates()

    def network(self, costs: Costs) -> Network:
        """Ranks are linked as each is to its host."""
        rate = min(costs.bandwidth_out, costs.bandwidth_in)
        return Link(rate, costs.latency, title=f"{rate / 1e9:g} GB/s and {costs.latency * 1e6:g} µs, as to the host")

    def has(self, format: str, programs: Callable[[], Sequence[Program]]) -> bool:
        return getattr(gpus.gpu(self.gpu), f"{format}_flops") is not None


def target_of(setting: Setting, gpu: str | None = None) -> Target:
    """The GPU of that name, simulated; None: the setting's device, opened."""
    return OnDevice(open_device(setting.device)) if gpu is None else Simulated(gpu)
