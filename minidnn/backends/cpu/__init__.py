"""The CPU backend, on memory that is all ours: oneDNN through its C API (onednn/), our own kernels in C (native/), and
in their stead, where there is no compiler, those of uncompiled/. `CpuDevice` is its face."""

from minidnn.backends.cpu.device import CpuDevice

__all__ = ["CpuDevice"]
