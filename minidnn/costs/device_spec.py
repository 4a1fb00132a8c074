"""What costs ask of a device: facts and lists, and nothing that runs. The devices that compute are those of
memory/execution/device.py, which knows this module and is not known to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from minidnn.program import DEFAULT, ON_TENSOR_CORES, TENSOR_CORES, Algorithm, Op


@dataclass(frozen=True)
class Rates:
    """A rough description of a device by a few numbers. `launch`: the least seconds of an op or a copy. `handoff`: the
    further seconds of a copy that a thread of the host makes, until that thread has the core and has given it back."""

    flops: float  # operations per second
    bandwidth: float  # bytes per second of the device's memory
    copy: float  # bytes per second of a copy to the host or back
    launch: float
    # operations per second of convolutions and inner products, by number format; a format without an entry: `flops`
    products: Mapping[str, float] = field(default_factory=dict)
    handoff: float = 0.0
    # family of products whose kernels are the device's own -> the part of `products` that those on tensor cores reach,
    # and the part of `flops` that those without reach
    own: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def arithmetic(self, op: Op, algorithm: Algorithm = DEFAULT) -> float:
        """Operations per second of this op by this algorithm."""
        if op.family in self.own:
            on_tensor_cores, without = self.own[op.family]
            if algorithm.name != TENSOR_CORES:
                return without * self.flops
            return on_tensor_cores * self.products.get(op.reads[0].dtype, self.flops)
        product = op.family in ON_TENSOR_CORES
        return self.products.get(op.reads[0].dtype, self.flops) if product else self.flops


# Roughly one core of any CPU of the last ten years. These numbers are fixed on purpose: see `estimates.estimate`.
CPU = Rates(40e9, 8e9, 4e9, 5e-6, handoff=15e-6)


class DeviceSpec(Protocol):
    """A device as costs see it. `memory` is in bytes."""

    name: str
    description: str  # all that measured seconds depend on
    memory: int
    rates: Rates
    own_memory: bool  # whether the arena lies in the device's own memory, not in the host's

    def algorithms(self, op: Op) -> tuple[Algorithm, ...]:
        """The ways to compute an op, the default first."""
        ...

    def hosts(self, op: Op) -> bool:
        """Whether the host can run this op on its own bytes."""
        ...
