"""The backends: devices that run a program's ops. Each is imported only when its device is opened by name."""

from __future__ import annotations

from typing import Any

from minidnn.errors import InvalidInput, near
from minidnn.memory.execution.device import Device

DEVICES = ("cpu", "reference", "cuda")


def open_device(name: str | Device, **options: Any) -> Device:
    """The device of a name: "cpu" (oneDNN and our own C kernels, or NumPy without oneDNN), "reference" (NumPy) or
    "cuda" (a GPU). Only "cuda" takes `options`: those of `cuda.open_gpu`. A Device is returned as it is.

    Raises InvalidInput for any other name, and `cuda.packages.CudaUnavailable` (an ImportError) if no GPU can be used.
    """
    if isinstance(name, Device):
        return name
    if name == "cpu":
        from minidnn.backends.cpu import CpuDevice

        return CpuDevice()
    if name == "reference":
        from minidnn.backends.reference import ReferenceDevice

        return ReferenceDevice()
    if name == "cuda":
        from minidnn.backends.cuda import open_gpu

        return open_gpu(**options)
    hint = near(name, DEVICES) if isinstance(name, str) else "; a device of your own is a subclass of Device"
    raise InvalidInput(f"there is no device {name!r}{hint}; there are {', '.join(DEVICES)}")
