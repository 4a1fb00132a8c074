"""The reference as a device: tensors are C-contiguous arrays, and each kind has one algorithm."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minidnn.backends import parts
from minidnn.backends.reference.kernels import KERNELS
from minidnn.errors import BadInput
from minidnn.formats import HALF
from minidnn.memory.execution.device import Device
from minidnn.memory.execution.host import physical_memory
from minidnn.memory.parts.whole import rows_of_parts
from minidnn.program import DEFAULT, Algorithm, Op, Tensor


class NoKernel(BadInput, KeyError):
    """The backend has no kernel for the op's kind; the message says how to add one."""


class TooLarge(NoKernel):
    """The op's sizes are too large for the backend's kernel, or for this machine's memory."""


class ReferenceDevice(Device):
    """NumPy on this machine's memory. Kernels are looked up when an op is prepared, so that users may add theirs."""

    name = "reference"

    def __init__(self) -> None:
        self.description = f"NumPy {np.__version__} ({_blas()})"
        self.memory = physical_memory()

    def algorithms(self, op: Op) -> tuple[Algorithm, ...]:
        kernel_of(op)
        return (DEFAULT,)

    def fuses(self, op: Op) -> bool:
        """Whether there is a kernel for this fused op. Such a kernel runs the parts one after the other, which defines
        the right result."""
        return op.kind in KERNELS

    def array(self, buffer: np.ndarray, tensor: Tensor) -> np.ndarray:
        return buffer.view(tensor.dtype).reshape(tensor.shape)

    def prepare(
        self, op: Op, algorithm: Algorithm, views: Mapping[Tensor, np.ndarray], workspace: np.ndarray
    ) -> Callable[[], None]:
        if (rows := rows_of_parts(algorithm)) is not None:
            return parts.prepared(self, op, algorithm, views, workspace, rows)
        reads, writes = [views[t] for t in op.reads], [views[t] for t in op.writes]
        return bound(op, reads, writes)


def kernel_of(op: Op) -> Callable[..., None]:
    """The kernel of the op's kind. Raises NoKernel if there is none."""
    if op.kind not in KERNELS:
        raise NoKernel(
            f"layer {op.layer}: the reference backend has no kernel for {op.kind!r}; "
            f"add one with minidnn.backends.reference.KERNELS[{op.kind!r}] = f(attrs, reads, writes)"
        )
    return KERNELS[op.kind]


def bound(op: Op, reads: list[np.ndarray], writes: list[np.ndarray]) -> Callable[[], None]:
    """The op's kernel bound to these arrays. For an array in a 16-bit format the kernel gets a float32 copy, and its
    result is rounded once, when it is stored. The call raises TooLarge if NumPy has no memory for temporaries."""
    kernel = kernel_of(op)
    half = {id(a): a for a in (*reads, *writes) if str(a.dtype) in HALF}

    def run() -> None:
        wide = {key: a.astype(np.float32) for key, a in half.items()}
        kernel(op.attrs, [wide.get(id(a), a) for a in reads], [wide.get(id(a), a) for a in writes])
        for a in writes:
            if id(a) in wide:
                a[...] = wide[id(a)]

    def call() -> None:
        try:
            run()
        except MemoryError as error:  # for NumPy's temporaries, which no budget counts
            raise TooLarge(
                f"layer {op.layer}: the reference's {op.kind} works on arrays that this machine has no memory for "
                f"({error}); smaller sizes are needed"
            ) from error

    return call


def _blas() -> str:
    """The library that computes matrix products, and its number of threads, by which sums are cut."""
    config: Any = np.show_config(mode="dicts")
    blas = config["Build Dependencies"]["blas"]
    given = (os.environ.get(f"{name}_NUM_THREADS", "") for name in ("OPENBLAS", "MKL", "OMP"))
    threads = next((int(n) for n in given if n.isdigit()), os.cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        threads = min(threads, len(os.sched_getaffinity(0)))
    return f"{blas['name']} {blas['version']}, {threads} thread{'' if threads == 1 else 's'}"
