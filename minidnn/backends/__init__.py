"""Machines: what a bound call really runs on. Each is imported only when asked for by name."""

from __future__ import annotations

from typing import Any

DEVICES = ("cpu", "reference", "cuda")


def open_device(name: Any, **options: Any) -> Any:
    """The device of that name: "cpu" (oneDNN, or its plain fallback), "reference" (NumPy) or "cuda" (a GPU; options
    are those of cuda.open_gpu). A device that is open already is itself. Raises ImportError
    (cuda.packages.CudaUnavailable) where no GPU can be used."""
    if not isinstance(name, str):
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
    raise ValueError(f"there is no device {name!r}; known: {', '.join(DEVICES)}")
