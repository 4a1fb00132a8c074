"""The backends: devices that run a program's ops. Each is imported only when its device is opened by name."""

from __future__ import annotations

import re
from typing import Any

from minidnn.errors import InvalidInput, near
from minidnn.memory.execution.device import Device

DEVICES = ("cpu", "reference", "cuda")
_GPU = re.compile(r"cuda(?::\d{1,4})?", re.ASCII)  # "cuda" is GPU 0, and "cuda:1" GPU 1


def check_name(name: object) -> None:
    """Raise InvalidInput if no device can have that name. To find out whether the device is there, open it."""
    if name in DEVICES or (isinstance(name, str) and _GPU.fullmatch(name)):
        return
    if isinstance(name, str) and name.startswith("cuda:"):
        raise InvalidInput(f"there is no device {name!r}: a GPU's number comes after cuda:, as in cuda:1")
    hint = near(name, DEVICES) if isinstance(name, str) else "; a device of your own is a subclass of Device"
    raise InvalidInput(f"there is no device {name!r}{hint}; there are {', '.join(DEVICES)} (of several GPUs, cuda:1)")


def open_device(name: str | Device, **options: Any) -> Device:
    """The device of a name: "cpu" (oneDNN and our own C kernels, or NumPy without oneDNN), "reference" (NumPy), "cuda"
    (a GPU) or "cuda:1" (another GPU). Only GPUs take `options`: those of `cuda.open_gpu`. A Device is returned as it
    is.

    Raises InvalidInput for any other name, and `cuda.packages.CudaUnavailable` (an ImportError) if the GPU cannot be
    used.
    """
    if isinstance(name, Device):
        return name
    check_name(name)
    if name == "cpu":
        from minidnn.backends.cpu import CpuDevice

        return CpuDevice()
    if name == "reference":
        from minidnn.backends.reference import ReferenceDevice

        return ReferenceDevice()
    from minidnn.backends.cuda import open_gpu

    return open_gpu(number=int(name.partition(":")[2] or 0), **options)


def names_here() -> list[str]:
    """The names of all devices, each of several GPUs by its number."""
    from minidnn.backends.cuda import packages

    try:
        cards = packages.find_driver().cards
    except packages.CudaUnavailable:
        cards = ()
    gpus = [f"cuda:{card.number}" for card in cards] if len(cards) > 1 else ["cuda"]
    return [name for name in DEVICES if name != "cuda"] + gpus
