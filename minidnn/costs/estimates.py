"""Estimated costs of this machine's devices, used when nothing has been measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minidnn.costs.costs import BLOCKING, MOST_DRAG, Choice, Costs, remembering, traffic
from minidnn.costs.device_spec import DeviceSpec
from minidnn.costs.host import assumed
from minidnn.program import Algorithm, Op

DOUBT = 1.0  # of copies by threads of the host: they may cost twice as much. Assumed


def estimate(device: DeviceSpec) -> Costs:
    """Costs from the device's `rates` alone. Nothing is measured, so that plans are the same at every start.

    Each kind of GPU has rates of its own; all CPUs share `CPU`. A backend lists the algorithm that it prefers first;
    each later one is assumed to take another 10 % of its time, as it would take by itself.

    A device in the host's memory copies by threads of the host (memory/execution/threads.py). All cores compute, so a
    copy takes one from the op beside it, and the op's other threads wait: copies and ops take turns.
    """
    rates = device.rates

    def choose(op: Op) -> tuple[Choice, ...]:
        def seconds(a: Algorithm) -> float:
            return max(op.flops / rates.arithmetic(op, a), traffic(op) / rates.bandwidth) + rates.launch

        return tuple(Choice(a, seconds(a) * (1 + 0.1 * i)) for i, a in enumerate(device.algorithms(op)))

    choices = remembering(choose)
    return Costs(
        device.name, device.memory, rates.copy, rates.copy, choices, rates.launch + rates.handoff,
        own_memory=device.own_memory, origin="estimated", drag=None if device.own_memory else BLOCKING,
        doubt=0.0 if device.own_memory else DOUBT, **by_host(device, choices),
    )  # fmt: skip


def by_host(device: DeviceSpec, choices: Callable[[Op], tuple[Choice, ...]]) -> dict[str, Any]:
    """The fields of Costs about ops that the host runs. A device in the host's memory is the host: an op takes as long
    there, and takes the device's cores and memory from the ops beside it."""

    def seconds(op: Op) -> float | None:
        if not device.hosts(op):
            return None
        return assumed(op) if device.own_memory else choices(op)[0].seconds

    return {"by_host": seconds, "host_drag": 0.0 if device.own_memory else MOST_DRAG}
