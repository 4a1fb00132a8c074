"""The CPU backend: oneDNN through its C API, on memory that is all ours. `CpuDevice` is its face."""

from minidnn.backends.cpu.device import CpuDevice

__all__ = ["CpuDevice"]
