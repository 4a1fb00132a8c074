"""Ops that fusion makes of two (fusion.py): the one, then the other."""

from __future__ import annotations

import numpy as np

from minidnn.backends.reference import convolution, dense


def _rectified(forward):
    def forward_relu(a, reads, writes):
        """y = ReLU(forward), -0.0 and NaN as relu.forward has them."""
        (y,) = writes
        forward(a, reads, writes)
        y[...] = np.where(y > 0, y, 0 * y)

    return forward_relu


convolution_relu, inner_product_relu = _rectified(convolution.forward), _rectified(dense.forward)


def relu_backward_bias(a, reads, writes):
    """dx = dy where y > 0; db[c] = the sum of dx over all axes but the channels'."""
    (y, dy), (dx, db) = reads, writes
    dx[...] = np.where(y > 0, dy, 0 * dy)
    dense.backward_bias(None, [dx], [db])
