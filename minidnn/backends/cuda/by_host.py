"""Ops that the host runs on its own bytes while the GPU goes on. It has the cpu backend's C kernels, and runs the kinds
of which these leave the GPU's bits (costs/host.py)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from minidnn.backends.cpu import forks, native, waits
from minidnn.backends.cpu.native.sources import KERNELS
from minidnn.compiled import NotCompiled
from minidnn.costs.host import same_bits
from minidnn.memory.execution.runtime import Call
from minidnn.program import Op, Tensor


@cache
def _kernels() -> native.Native:
    """Our C kernels, on as many threads as OpenMP says. Raises NotCompiled."""
    with waits.briefly():
        library = KERNELS.load()
    forks.end_threads_before(library)
    return native.Native(library, library.omp_get_max_threads())


def runs(op: Op) -> bool:
    """Whether the host has a kernel for the op that leaves the GPU's bits."""
    if not same_bits(op):
        return False
    try:
        _kernels()
    except NotCompiled:
        return False
    return True


def prepare(op: Op, arrays: Mapping[Tensor, np.ndarray]) -> Call:
    """The op bound to its bytes on the host; `arrays`: {tensor: its bytes}. Calling it calls nothing of CUDA."""
    calls = []
    for one in op.members:
        (recipe,) = native.FIRST[one.kind](_kernels(), one)
        calls += recipe.bind([arrays[t] for t in one.reads], [arrays[t] for t in one.writes], np.empty(0, np.uint8))

    def call() -> None:
        for each in calls:
            each()

    return call
