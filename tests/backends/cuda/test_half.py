"""Whole nets in 16 bits on a CUDA of the host's memory: the reference's numbers in the same format, and the same bytes
under every policy. (Kernel by kernel: test_formats.py and test_reductions.py.)"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from minidnn import formats
from minidnn.backends.reference import ReferenceDevice
from tests.support.cpu_step import trained
from tests.support.cuda import host as cuda_host
from tests.support.cuda.fake import fake_device
from tests.support.policies import FEW

pytestmark = [
    pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to run CUDA sources with"),
    pytest.mark.extended,
]
pytest.importorskip("ml_dtypes")
formats.usable("bfloat16")

NETS = ["chain", "residual", "inception", "nested", "lenet"]
EPSILON = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


@cache
def baseline(net: str, algorithms: str, format: str) -> dict[str, np.ndarray]:
    return trained(net, fake_device(graphs=False), f"baseline:{algorithms}", format=format)


@pytest.mark.slow
@pytest.mark.parametrize("format", EPSILON)
@pytest.mark.parametrize("net", NETS)
def test_trains_as_the_reference_does(net, format):
    want, got = trained(net, ReferenceDevice(), "baseline:m", format=format), baseline(net, "m", format)
    assert want.keys() == got.keys() and {v.dtype for v in got.values()} == {np.dtype("float32")}
    for name in want:
        if ".momentum" in name:  # of a bias before a batch normalization it is the rounding of zero
            continue
        scale = max(float(np.abs(want[name]).max()), 1e-2)
        assert np.abs(got[name] - want[name]).max() <= 8 * EPSILON[format] * scale, name


@pytest.mark.slow
@pytest.mark.parametrize("format", EPSILON)
@pytest.mark.parametrize("policy", FEW)
@pytest.mark.parametrize("net", NETS)
def test_the_same_bytes_under_every_policy(net, policy, format):
    want = baseline(net, "p" if policy.endswith((":p", "dyn")) else "m", format)
    got = trained(net, fake_device(1), policy, format=format, debug=True)
    assert [n for n in want if got[n].tobytes() != want[n].tobytes()] == []
