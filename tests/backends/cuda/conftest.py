"""Fixtures of the cuda backend's tests."""

from __future__ import annotations

import pytest

from minidnn.backends.cuda import packages
from minidnn.backends.cuda.nvrtc import Nvrtc


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    try:
        return Nvrtc(packages.load(gpu=False).paths["nvrtc"])
    except packages.CudaUnavailable as missing:
        pytest.skip(str(missing))
