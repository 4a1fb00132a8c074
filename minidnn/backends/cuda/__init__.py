"""The CUDA backend: cuDNN and kernels of our own, on memory that is all ours. Importing it needs no CUDA.

A user's own layer adds its kernels here: `KINDS["cube.forward"] = f(op) -> [Recipe, ...]`.
"""

from minidnn.backends.cuda.device import KINDS, CudaDevice, Planner, open_gpu

__all__ = ["KINDS", "CudaDevice", "Planner", "open_gpu"]
