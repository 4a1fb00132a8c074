"""Machines: what a bound call really runs on. Each is imported only when asked for by name."""

from __future__ import annotations

from typing import Any

DEVICES = ("cpu", "reference")


def open_device(name: str) -> Any:
    """The device of that name: "cpu" (oneDNN, or its plain fallback) or "reference" (NumPy)."""
    if name == "cpu":
        from minidnn.backends.cpu import CpuDevice

        return CpuDevice()
    if name == "reference":
        from minidnn.backends.reference import ReferenceDevice

        return ReferenceDevice()
    raise ValueError(f"there is no device {name!r}; known: {', '.join(DEVICES)}")
