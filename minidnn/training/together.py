"""One rank of several that a launcher has started: its device and its engine.

On GPUs each rank of a machine takes its own, and NCCL moves the bytes. On other devices MPI does, and the ranks of a
machine divide its CPUs.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from minidnn.backends import open_device
from minidnn.errors import InvalidInput
from minidnn.jobs.setting import Setting
from minidnn.memory.execution.device import Device
from minidnn.ranks import launched
from minidnn.ranks.engine import Engine
from minidnn.ranks.launched import Launch

THREADS = "OMP_NUM_THREADS"  # the user's number of threads


def own_gpu(launch: Launch, name: str, **options: Any) -> Device:
    """This rank's GPU. `options`: those of `cuda.open_gpu`. Raises InvalidInput if the machine has too few."""
    from minidnn.backends.cuda import packages

    return open_device(launch.gpu(name, len(packages.find_driver().cards)), **options)


def together(setting: Setting, launch: Launch) -> tuple[Setting, Engine, list[str]]:
    """The setting with this rank's device and engine, and what the user should know of them.

    Raises InvalidInput, and what `launched.engine`, `launched.channel` and `Nccl` raise."""
    device = setting.device
    if isinstance(device, str) and device.partition(":")[0] == "cuda":
        device = own_gpu(launch, device)
    if not isinstance(device, str) and device.name == "cuda":
        engine = _nccl(device, launch, setting.rank_limit)
        return replace(setting, device=device, engine=engine), engine, []
    if not isinstance(device, str) and device.own_memory:
        raise InvalidInput(f"several ranks cannot compute on {device.name}: MPI moves bytes of host memory only")
    engine = launched.engine(launch, setting.rank_limit)
    device, told = _divided(device, engine)
    return replace(setting, device=device, engine=engine), engine, [] if launch.rank else told


def _divided(device: str | Device, engine: Engine) -> tuple[str | Device, list[str]]:
    """The device, if it is "cpu" with this rank's part of the CPUs, and what to say of that."""
    count = launched.threads(engine)
    if device != "cpu" or THREADS in os.environ:
        return device, []
    from minidnn.backends.cpu import CpuDevice

    usual = CpuDevice()
    if usual.threads is None or usual.threads <= count:
        return usual, []
    each = "one thread" if count == 1 else f"{count} threads"
    told, own = f"ranks share this machine's CPUs, and each computes with {each}", CpuDevice(count)
    if own.numerics != usual.numerics:
        told += ": the last bits depend on that number"
    return own, [f"{told}, and {THREADS} sets it"]


def _nccl(device: Any, launch: Launch, limit: float) -> Engine:
    from minidnn.ranks.nccl import Nccl

    result = launched.channel(launch, limit)
    try:
        engine = Nccl(result, device.api, device.net, limit)
    except BaseException:
        result.close()
        raise
    device.memory = min(engine.share(device.free()))  # NCCL has taken some; all ranks make one plan
    return engine
