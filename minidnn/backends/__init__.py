"""Machines: what a bound call really runs on. Each is imported only when asked for by name."""

from __future__ import annotations

from typing import Any

from minidnn.errors import InvalidInput, near
from minidnn.memory.execution.device import Device

DEVICES = ("cpu", "reference", "cuda")


def open_device(name: str | Device, **options: Any) -> Device:
    """The device of that name: "cpu" (oneDNN, or its plain fallback), "reference" (NumPy) or "cuda" (a GPU; options
    are those of cuda.open_gpu). A device that is open already is itself.

    Raises InvalidInput where there is no such device, and ImportError (cuda.packages.CudaUnavailable) where no GPU can
    be used.
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
