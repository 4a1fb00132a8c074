"""On which device a module's step runs, and how it is repeated there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from minidnn.errors import InvalidInput
from minidnn.memory.execution.disk import DiskFile
from minidnn.memory.lowering.lower import lower
from minidnn.memory.proof.verify import verify
from minidnn.memory.schedule import Schedule
from minidnn.torch.addresses.api import installed
from minidnn.torch.addresses.stepping import Stepping
from minidnn.torch.capture import Capture
from minidnn.torch.code import Steps, owned, written
from minidnn.torch.cuda_graph import Graphed, why_not
from minidnn.torch.cuda_runtime import OnCUDA
from minidnn.torch.installed import torch_module
from minidnn.torch.runtime import OnCPU, Runtime

if TYPE_CHECKING:
    import torch


def device_of(module: torch.nn.Module) -> torch.device:
    """The device of all parameters and buffers; without any, the CPU. Raises InvalidInput for several, and for a device
    on which no step runs."""
    first: dict[torch.device, str] = {}
    for name, t in (*module.named_parameters(), *module.named_buffers()):
        first.setdefault(t.device, name)
    if len(first) > 1:
        where = ", ".join(f"{name} on {device}" for device, name in first.items())
        raise InvalidInput(
            f"{type(module).__name__} lies on {len(first)} devices ({where}), and a step is planned for one: move it "
            f"(module.to({str(next(iter(first)))!r})), or plan each part alone"
        )
    device: torch.device = next(iter(first), torch_module().device("cpu"))
    if device.type not in ("cpu", "cuda"):
        raise InvalidInput(
            f"{type(module).__name__} lies on {device} ({first[device]}), where no step runs: "
            "move it to 'cpu' or 'cuda'" + ("; to plan without memory, minidnn.torch.plan" * (device.type == "meta"))
        )
    return device


def suited(device: torch.device, schedule: Schedule) -> Schedule:
    """The schedule as the device's memory needs it.

    `best` lets a copy back begin as soon as the bytes at its planned offset are free (memory/lowering/asap.py). On a
    GPU PyTorch's allocator chooses where bytes lie. So there a copy back waits for all that used any freed bytes."""
    if device.type == "cpu" or not schedule.plan.asap or schedule.staging is not None:
        return schedule
    made = lower(schedule.program, schedule.plan)
    offset = {b: schedule.offset[was] for b, was in zip(made.buffers, schedule.buffers, strict=True)}
    result = replace(schedule, instructions=made.instructions, buffers=made.buffers, points=made.points, offset=offset)
    verify(result)
    return result


def repeated(capture: Capture, schedule: Schedule, runs_on: Runtime, graph: bool) -> Callable[..., Steps]:
    """The step's function for all runs but the first: with planned addresses where they were asked for, else as graphs
    where they were asked for and can be had."""

    def make(runtime: Runtime, told: Callable[[int], object] | None = None) -> Callable[..., Steps]:
        return written(capture, schedule, runtime, told=told)

    if isinstance(runs_on, OnCUDA):
        own = installed()
        if own is not None:
            number = runs_on.device.index or 0
            stream = lambda: int(runs_on.compute().cuda_stream)  # noqa: E731
            return Stepping(own, make(runs_on), make(runs_on, own.note), schedule, number, stream)
        if graph:
            inputs = [capture.sources[t].what == "input" for t in owned(capture)]
            return Graphed(capture, schedule, runs_on, make, inputs, why_not(capture, schedule))
    return make(runs_on)


def runtime(device: torch.device, schedule: Schedule, disk: DiskFile | None = None) -> OnCPU | OnCUDA:
    """What carries the tensors of a schedule on this device."""
    return OnCPU(schedule, disk) if device.type == "cpu" else OnCUDA(schedule, device, disk)
