"""The CPU backend; `CpuDevice` is its public class. Its own kernels use only the tensors and the workspace that they
are given.

onednn/ calls oneDNN through its C API, and native/ has our own kernels in C.
"""

from minidnn.backends.cpu.device import CpuDevice

__all__ = ["CpuDevice"]
