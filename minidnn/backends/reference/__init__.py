"""The reference backend: NumPy, one short function per kind of op. It defines the right results, and is not fast.

A kernel is `f(attrs, reads, writes)`: it computes from the arrays in `reads` and stores into the arrays in `writes`.
Shapes are logical (N, C, H, W) and strides arbitrary. Floats are float32, or float64 for checks. A write may have the
bytes of a read if the op permits it. Temporaries are NumPy's, outside the arena; the kernels of the cpu and cuda
backends allocate nothing. `backends/families.py` lists the file of each kind's kernel.

A user's own layer adds its kernels here: `KERNELS["cube.forward"] = f`.
"""

from __future__ import annotations

from minidnn.backends.reference.device import NoKernel, ReferenceDevice, TooLarge, bound
from minidnn.backends.reference.kernels import KERNELS

__all__ = ["KERNELS", "NoKernel", "ReferenceDevice", "TooLarge", "bound"]
