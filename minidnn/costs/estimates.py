"""Estimated costs of this machine's devices, used when nothing has been measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minidnn.costs.costs import MOST_DRAG, Choice, Costs, remembering, traffic
from minidnn.costs.host import assumed
from minidnn.program import ON_TENSOR_CORES, Op

if TYPE_CHECKING:
    from minidnn.memory.execution.device import Device


@dataclass(frozen=True)
class Rates:
    """A rough description of a device by a few numbers. `launch`: the least seconds of an op or a copy."""

    flops: float  # operations per second
    bandwidth: float  # bytes per second of the device's memory
    copy: float  # bytes per second of a copy to the host or back
    launch: float
    # operations per second of convolutions and inner products, by number format; a format without an entry: `flops`
    products: Mapping[str, float] = field(default_factory=dict)

    def arithmetic(self, op: Op) -> float:
        """Operations per second of this op."""
        product = op.family in ON_TENSOR_CORES
        return self.products.get(op.reads[0].dtype, self.flops) if product else self.flops


# Roughly one core of any CPU of the last ten years. These numbers are fixed on purpose: see `estimate`.
CPU = Rates(40e9, 8e9, 4e9, 5e-6)


def estimate(device: Device) -> Costs:
    """Costs from the device's `rates` alone. Nothing is measured, so that plans are the same at every start.

    Each kind of GPU has rates of its own; all CPUs share `CPU`. A backend lists the algorithm that it prefers first;
    each later one is assumed to take another 10 % of the first one's time.
    """
    rates = device.rates

    def choose(op: Op) -> tuple[Choice, ...]:
        seconds = max(op.flops / rates.arithmetic(op), traffic(op) / rates.bandwidth) + rates.launch
        return tuple(Choice(a, seconds * (1 + 0.1 * i)) for i, a in enumerate(device.algorithms(op)))

    choices = remembering(choose)
    return Costs(
        device.name, device.memory, rates.copy, rates.copy, choices, rates.launch,
        own_memory=device.own_memory, origin="estimated", **by_host(device, choices),
    )  # fmt: skip


def by_host(device: Device, choices: Callable[[Op], tuple[Choice, ...]]) -> dict[str, Any]:
    """The fields of Costs about ops that the host runs. A device in the host's memory is the host: an op takes as long
    there, and takes the device's cores and memory from the ops beside it."""

    def seconds(op: Op) -> float | None:
        if not device.hosts(op):
            return None
        return assumed(op) if device.own_memory else choices(op)[0].seconds

    return {"by_host": seconds, "host_drag": 0.0 if device.own_memory else MOST_DRAG}
