"""Measures the seconds of each (op, algorithm) of a program on this machine, and the copies.

Each op runs alone, warm, on ordinary numbers (measuring/bench.py). The median of a few runs counts. A short op runs
many times without a gap, so that the time of its launch does not count. On a device in the host's memory the seconds
within whole steps count instead, if there is room for such steps (measuring/steps.py). Steps with copies show there how
long copies take in this net (docs/costs.md).

Ops in parts of the batch are not measured: their seconds follow from those of the whole (costs/parts.py).

An algorithm that the device refuses to run is dropped and kept as refused. The next start leaves it out, too; also one
that has broken the whole device, which ends this process's measurements.
Communications between ranks are not measured here (measuring/ranks.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from minidnn.costs import Costs, Measurements, key, measured, whole
from minidnn.costs.parts import PART_COPIES
from minidnn.measuring.bench import Tell, each
from minidnn.measuring.link import Link, link
from minidnn.measuring.steps import copies as copies_within
from minidnn.measuring.steps import within_steps
from minidnn.memory.execution.device import Device, KernelFailed
from minidnn.memory.execution.host import free_memory
from minidnn.program import Algorithm, Op, Pass, Program


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
    copying = [] if device.own_memory else [p for p in programs if _may_copy(p)]
    if not (wanted or link_wanted):
        copying = [p for p in copying if whole(p) not in measurements.copies]
    if wanted or link_wanted or copying:
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
        for program in copying:
            tell(0, 1, f"steps of {program.name} with copies")
            found = copies_within(device, program, measured(device, measurements), free_memory() // 2)
            if found is not None:
                measurements.copies[whole(program)] = found
    except KernelFailed:  # the whole device: the algorithm that has broken it is not tried by the next process
        measurements.refused |= {k: device.refused[k] for k in wanted if k in device.refused}
        raise
    finally:  # after Ctrl-C, too, the measurements so far are saved
        if wanted or link_wanted or copying:
            measurements.save()
    return measured(device, measurements, programs)


def _may_copy(program: Program) -> bool:
    """Whether a policy may send tensors of its steps away, and it can be run by one device."""
    return any(op.during is Pass.BACKWARD for op in program.ops) and not any(op.on_net for op in program.ops)


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
