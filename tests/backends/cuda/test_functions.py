"""The functions of single elements on the CPU (tests/support/cuda/host.py), on numbers of every size. Their formulas
neither overflow nor lose digits where the reference's do not. (CUDA's manual says how far off its exp and erf are.)"""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends.reference import KERNELS
from minidnn.layers.unary import READS, UnaryAttrs
from tests.support.cuda import host as cuda_host
from tests.support.cuda.host import HostCuda
from tests.support.grid import grid
from tests.support.op_examples import Maker, expected, run
from tests.support.op_examples.activations import USES

pytestmark = [
    pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to compile CUDA sources for the CPU with"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


@pytest.mark.parametrize(("function", "numbers"), [use[:2] for use in USES], ids=str)
def test_equals_the_reference_on_numbers_of_every_size(function, numbers):
    m, x, a = Maker(0), grid(400_009), UnaryAttrs(function, numbers)
    device, forward = HostCuda(), m.example("unary.forward", [x], [x.shape], a)
    (y,) = expected(KERNELS, forward)
    found = [(run(device, forward, device.algorithms(forward.op)[0])[0], y)]
    if function in READS:
        saved = y if READS[function] == "y" else x
        backward = m.example("unary.backward", [saved, np.ones_like(x)], [x.shape], a)
        found.append((run(device, backward, device.algorithms(backward.op)[0])[0], expected(KERNELS, backward)[0]))
    for got, want in found:
        finite = np.isfinite(want)
        assert np.array_equal(got[~finite], want[~finite], equal_nan=True)
        assert (np.abs(got - want)[finite] <= 1e-5 * np.abs(want[finite]) + 2e-7).all()
