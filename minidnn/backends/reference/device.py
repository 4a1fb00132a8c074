"""The reference as a device: C-contiguous arrays, one algorithm per kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from minidnn.backends.reference.kernels import KERNELS
from minidnn.program import DEFAULT, Algorithm, Op, Tensor


class ReferenceDevice:
    """NumPy on this machine's memory. Kernels are looked up when they are prepared, so that users may add theirs."""

    name = "reference"

    def __init__(self) -> None:
        self.description = f"NumPy {np.__version__}"
        self.memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def algorithms(self, op: Op) -> tuple[Algorithm, ...]:
        self._kernel(op)
        return (DEFAULT,)

    def array(self, buffer: np.ndarray, tensor: Tensor) -> np.ndarray:
        return buffer.view(tensor.dtype).reshape(tensor.shape)

    def prepare(
        self, op: Op, algorithm: Algorithm, views: Mapping[Tensor, np.ndarray], workspace: np.ndarray
    ) -> Callable[[], None]:
        reads, writes = [views[t] for t in op.reads], [views[t] for t in op.writes]
        return partial(self._kernel(op), op.attrs, reads, writes)

    @staticmethod
    def _kernel(op: Op) -> Callable[..., None]:
        if op.kind not in KERNELS:
            raise KeyError(
                f"layer {op.layer}: the reference backend has no kernel for {op.kind!r}; "
                f"add one with minidnn.backends.reference.KERNELS[{op.kind!r}] = f(attrs, reads, writes)"
            )
        return KERNELS[op.kind]
