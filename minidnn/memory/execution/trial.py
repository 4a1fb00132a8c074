"""Runs the algorithms that a device is in doubt of, before a machine uses them: a library may list an algorithm, and
refuse to run it later.

Each is run once, on an arena that holds no values yet. An algorithm that is refused is dropped. In its place comes the
first one left whose workspace is at most the planned one. So every byte keeps its place, and the proof still holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from minidnn.costs import geometry, key
from minidnn.errors import few
from minidnn.memory.execution.device import Device, KernelFailed
from minidnn.memory.schedule import Arrangement, Compute, Instruction, Schedule
from minidnn.program import Algorithm, Op


class Unfit(KernelFailed):
    """A planned algorithm was refused, and each one left needs more workspace than was planned: plan anew without it
    (`minidnn.costs.offered`)."""


Run = Callable[[Schedule, Compute], object]


def runnable(device: Device, arrangement: Arrangement, run: Run) -> Arrangement:
    """The arrangement with algorithms that the device runs.

    run: runs one instruction of a schedule, and raises KernelFailed if the device refuses it

    Raises Unfit, KernelFailed if the whole device has failed, and BadInput if no algorithm is left for an op."""
    schedules = {name: _runnable(device, schedule, run) for name, schedule in arrangement.schedules.items()}
    return replace(arrangement, schedules=schedules)


def _runnable(device: Device, schedule: Schedule, run: Run) -> Schedule:
    changed: dict[Op, Algorithm] = {}
    instructions: list[Instruction] = []
    for x in schedule.instructions:
        if isinstance(x, Compute) and x.stream == "compute":
            sound = _sound(device, schedule, x, run)
            if sound is not x:
                x = sound
                changed[x.op] = x.algorithm
        instructions.append(x)
    if not changed:
        return schedule
    plan = replace(schedule.plan, algorithm={**schedule.plan.algorithm, **changed})
    return replace(schedule, plan=plan, instructions=tuple(instructions))


def _sound(device: Device, schedule: Schedule, x: Compute, run: Run) -> Compute:
    planned = x.algorithm
    while not _runs(device, schedule, x, run):
        fitting = [a for a in device.algorithms(x.op) if a.workspace <= planned.workspace]
        if not fitting:
            why = device.refused[key(x.op, x.algorithm)]
            raise Unfit(f"{why}; what is left needs more than {planned.workspace} bytes of workspace")
        x = replace(x, algorithm=fitting[0])
    return x


def _runs(device: Device, schedule: Schedule, x: Compute, run: Run) -> bool:
    if device.refused and key(x.op, x.algorithm) in device.refused:
        return False
    if device.in_doubt(x.op, x.algorithm):
        try:
            run(schedule, x)
        except KernelFailed as refusal:
            device.drop(x.op, x.algorithm, refusal)
            return False
    return True


def refusals(device: Device, arrangement: Arrangement) -> list[str]:
    """A sentence for each algorithm that the device refused for a geometry of these programs: why, and what runs there
    instead."""
    if not device.refused:
        return []
    instead: dict[str, dict[str, list[str]]] = {}  # geometry -> {algorithm: ops}
    for schedule in arrangement.schedules.values():
        for op, algorithm in schedule.plan.algorithm.items():
            ops = instead.setdefault(geometry(op), {}).setdefault(algorithm.name, [])
            if op.name not in ops:
                ops.append(op.name)
    result = []
    for name, why in device.refused.items():
        if used := instead.get(name.rpartition(" [")[0]):
            result.append(f"{why}; instead, " + "; ".join(f"{a} runs {few(ops)}" for a, ops in used.items()))
    return result
