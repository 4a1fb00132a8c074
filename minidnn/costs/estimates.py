"""A guess for a machine that is here, of which nothing has been measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minidnn.costs.costs import Choice, Costs, remembering
from minidnn.program import PRODUCTS, Op

if TYPE_CHECKING:
    from minidnn.memory.execution.device import Device


@dataclass(frozen=True)
class Rates:
    """A device in a few numbers. `launch`: seconds of anything at least."""

    flops: float  # per second
    bandwidth: float  # bytes per second, of its memory
    copy: float  # bytes per second, to the host and back
    launch: float
    products: Mapping[str, float] = field(default_factory=dict)  # flops of convolutions and inner products, by format

    def arithmetic(self, op: Op) -> float:
        """Operations per second of this op."""
        product = op.family in PRODUCTS
        return self.products.get(op.reads[0].dtype, self.flops) if product else self.flops


# One core's worth, roughly, of any CPU of the last ten years. Fixed on purpose: see `estimate`.
CPU = Rates(40e9, 8e9, 4e9, 5e-6)


def estimate(device: Device) -> Costs:
    """A guess for the machine at hand that measures nothing, so that its plans are the same at every start.

    By the device's `rates`: a GPU has its own, by its kind. A backend lists the algorithm it would choose
    first; each later one is taken to be 10 % slower.
    """
    rates = device.rates

    def choose(op: Op) -> tuple[Choice, ...]:
        seconds = max(op.flops / rates.arithmetic(op), op.nbytes / rates.bandwidth) + rates.launch
        return tuple(Choice(a, seconds * (1 + 0.1 * i)) for i, a in enumerate(device.algorithms(op)))

    return Costs(
        device.name, device.memory, rates.copy, rates.copy, remembering(choose), rates.launch,
        own_memory=device.own_memory, origin="estimated",
    )  # fmt: skip
