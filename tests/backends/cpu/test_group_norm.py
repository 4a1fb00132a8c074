"""Norms of groups on the cpu: near to float64 however far from 0 x is.

That they equal the reference's, by any number of threads, test_native_kinds.py shows."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends.cpu.native.binding import NAME
from tests.support.op_examples import Maker, attrs, compiled, run

EPS = 1e-5


@pytest.mark.parametrize("shape", [(2, 12, 5, 7), (1, 6, 40, 60), (2, 12, 1), (2, 6, 5000)])
@pytest.mark.parametrize("groups", [1, 3, 6])
def test_moments_are_near_to_float64_however_far_from_zero(shape, groups):
    """Also from the elements that sums begin with, if these alone are far off: then less near."""
    m, device = Maker(groups), compiled()
    for offset, outlier, near in ((0, 0, 1e-6), (1e3, 0, 1e-6), (-3e4, 0, 5e-6), (0, 1e4, 5e-4)):
        x = m.normal(*shape) + np.float32(offset)
        x.reshape(*shape[:2], -1)[:, 0, 0] += np.float32(outlier)
        a = attrs(groups=groups, eps=EPS)
        e = m.example("group_norm.forward", [x], [shape, (shape[0], groups), (shape[0], groups)], a)
        (algorithm,) = (one for one in device.algorithms(e.op) if one.name == NAME)
        _, inverse, mean = run(device, e, algorithm)
        exact = x.astype(np.float64).reshape(shape[0], groups, -1)
        wanted = exact.var(2)
        assert np.abs(mean - exact.mean(2)).max() <= 2e-7 * np.abs(exact).max()  # a float32's last bit
        found = inverse.astype(np.float64) ** -2 - EPS
        assert np.all(np.abs(found - wanted) <= 2 * near * wanted + 1e-6), (offset, outlier)
