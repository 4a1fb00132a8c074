"""The CPU backend; `CpuDevice` is its public class. Its own kernels use only the tensors and the workspace that they
are given.

onednn/ calls oneDNN through its C API, and native/ has our own kernels in C. Where there is no C compiler, uncompiled/
takes the place of native/.
"""

from minidnn.backends.cpu.device import CpuDevice

__all__ = ["CpuDevice"]
