"""The CUDA backend: cuDNN's kernels and our own, in memory that a plan has assigned. Importing it needs no CUDA.

A user's own layer adds its kernels here: `KINDS["cube.forward"] = f(op) -> [Recipe, ...]`.
"""

from minidnn.backends.cuda.device import KINDS, CudaDevice, Planner, open_gpu

__all__ = ["KINDS", "CudaDevice", "Planner", "open_gpu"]
