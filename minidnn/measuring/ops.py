"""Measures the seconds of each (op, algorithm) of a program on this machine, and the copies.

Each op runs alone, warm, on ordinary numbers (measuring/bench.py). The median of a few runs counts. A short op runs
many times without a gap, so that the time of its launch does not count. On a device in the host's memory the seconds
within whole steps count instead, if there is room for such steps (measuring/steps.py). Costs do not say how much copies
and ops slow each other down (docs/costs.md).

Ops in parts of the batch are not measured: their seconds follow from those of the whole (costs/parts.py).

An algorithm that the device refuses to run is dropped and kept as refused. The next start leaves it out, too.
Communications between ranks are not measured here (measuring/ranks.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from minidnn.costs import Costs, Measurements, key, measured
from minidnn.costs.parts import PART_COPIES
from minidnn.measuring.bench import Tell, each
from minidnn.measuring.link import Link, link
from minidnn.measuring.steps import within_steps
from minidnn.memory.execution.device import Device, KernelFailed
from minidnn.memory.execution.host import free_memory
from minidnn.program import Algorithm, Op, Program


def measure(
    device: Device,
    programs: Sequence[Program],
    measurements: Measurements,
    again: bool = False,
    tell: Tell = lambda done, of, name: None,
    copies: Callable[[Device], Link] = link,
) -> Costs:
    """Measure all that `known` lacks (with `again`: everything), add it to `known`, save it, and return the costs.

    `tell(done, of, name)` is called before each measurement; `copies(device)` measures the copies.

    Raises NotKept before the first measurement if `known` could not be saved, KernelFailed if the whole device has
    failed, and BadInput if the device has refused every algorithm of an op.
    """
    wanted: dict[str, tuple[Op, Algorithm]] = {}
    for op in (*PART_COPIES.values(), *(op for program in programs for op in program.ops)):
        for algorithm in () if op.on_net else device.algorithms(op):
            k = key(op, algorithm)
            if k in measurements.refused and not again:
                device.drop(op, algorithm, KernelFailed(measurements.refused[k]))
            elif again or k not in measurements.seconds:
                wanted.setdefault(k, (op, algorithm))
    link_wanted = again or not (measurements.bandwidth_out and measurements.beside)
    if wanted or link_wanted:
        measurements.check_writable()
    if link_wanted:
        result = copies(device)
        measurements.bandwidth_out, measurements.bandwidth_in, measurements.latency = (
            result.out,
            result.back,
            result.latency,
        )
        measurements.beside = result.beside()
    try:
        for k, found_alone in each(device, wanted, tell):
            if isinstance(found_alone, KernelFailed):
                measurements.refused[k] = str(found_alone)
            else:
                measurements.seconds[k] = found_alone
                measurements.refused.pop(k, None)
        if wanted and not device.own_memory:
            _within_steps(device, programs, measurements, wanted, tell)
    finally:  # after Ctrl-C, too, the measurements so far are saved
        if wanted or link_wanted:
            measurements.save()
    return measured(device, measurements)


def _within_steps(
    device: Device, programs: Sequence[Program], measurements: Measurements, keys: Container[str], tell: Tell
) -> None:
    """Replace the wanted seconds in `known` by those within steps of the programs, for a device in host memory."""
    for program in programs:
        if any(op.on_net for op in program.ops):  # no rank is alone with such a step
            continue

        def tell_steps(done: int, of: int, name: str = program.name) -> None:
            tell(done, of, f"steps of {name}")

        taken = within_steps(device, program, measured(device, measurements), free_memory() // 2, tell_steps)
        measurements.seconds |= {k: seconds for k, seconds in taken.items() if k in keys}
