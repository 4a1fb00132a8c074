"""Of the updates that the host may run for a GPU, the cpu's C kernel and the CUDA kernel leave the same bytes. (The
CUDA kernel runs through g++ here, without fused multiply-adds, as NVRTC is told to compile it. `make gpu-check`
compares the two on a GPU.)"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from minidnn.backends import layout
from minidnn.backends.cpu.native.sources import KERNELS, LEVELS
from minidnn.backends.cuda import by_host
from minidnn.backends.cuda.compile import OPTIONS
from minidnn.costs.host import SAME_BITS
from minidnn.program import DEFAULT
from tests.support.cuda import host as cuda_host
from tests.support.cuda.host import HostCuda
from tests.support.op_examples import examples, run


class Host:
    """The host as a device for examples."""

    array = staticmethod(layout.view)

    def prepare(self, op, algorithm, views, workspace):
        return by_host.prepare(op, views)


@pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to run CUDA sources with")
def test_the_host_s_kernels_leave_the_bits_of_cuda_s():
    seen, large = Counter(), Counter()
    for e in examples():
        if e.op.kind in SAME_BITS:
            large[e.op.kind] += e.op.reads[0].size > 10000
            if e.op.reads[0].size > 10000 and large[e.op.kind] > 2:  # the shim takes long
                continue
            assert by_host.runs(e.op)
            want, got = run(HostCuda(), e, DEFAULT), run(Host(), e, DEFAULT)
            for a, b in zip(want, got, strict=True):
                assert a.tobytes() == b.tobytes(), (e.name, np.flatnonzero(a != b)[:3])
            seen[e.op.kind] += 1
    assert set(seen) == SAME_BITS and seen.total() > 100, seen


def test_neither_compiler_may_fuse_a_multiplication_with_an_addition():
    assert all("-ffp-contract=off" in KERNELS.options(level) for level in (None, *LEVELS))
    assert "--fmad=false" in OPTIONS
