"""The reference backend: NumPy, one short function per kind of op. It is the definition of right, not of fast.

A kernel is `f(attrs, reads, writes)`: it computes from the arrays in `reads` and stores into those in `writes`. Their
shapes are logical (N, C, H, W), their strides any, their type float32, or float64 for checks. A write may lie on the
bytes of a read where the op permits it. Temporaries are NumPy's, outside the arena; the cpu and cuda backends allocate
nothing. Which file has a kind's kernel, `backends/families.py` says. A user's own layer adds its kernels here:
`KERNELS["cube.forward"] = f`.
"""

from __future__ import annotations

from minidnn.backends.reference.device import NoKernel, ReferenceDevice, TooLarge, bound
from minidnn.backends.reference.kernels import KERNELS

__all__ = ["KERNELS", "NoKernel", "ReferenceDevice", "TooLarge", "bound"]
