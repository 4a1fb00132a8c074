"""The reference backend: NumPy, one short function per kind of op. It is the definition of right, not of fast.

A kernel is `f(attrs, reads, writes)`: it computes from the arrays in `reads` and stores into those in `writes`
(shapes N, C, H, W; any strides; float32, or float64 for checks), right also where a write lies on the bytes of a
read that the op declares in place. Its temporaries are NumPy's, outside the arena: the cpu and cuda backends are
the ones that allocate nothing. A user's own layer adds its kernels here: `KERNELS["cube.forward"] = f`.
"""

from __future__ import annotations

from minidnn.backends.reference.device import NoKernel, ReferenceDevice, TooLarge, bound
from minidnn.backends.reference.kernels import KERNELS

__all__ = ["KERNELS", "NoKernel", "ReferenceDevice", "TooLarge", "bound"]
