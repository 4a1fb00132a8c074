"""Ops that fusion makes of several (fusion.py): the one, then the other."""

from __future__ import annotations

import numpy as np

from minidnn.backends.reference import convolution, dense, normalization, pooling
from minidnn.backends.reference.elementwise import passed, rectified


def _rectified(forward):
    def forward_relu(a, reads, writes):
        """y = ReLU(forward), zeros and NaN as relu.forward has them."""
        forward(a, reads, writes)
        writes[0][...] = rectified(writes[0])

    return forward_relu


convolution_relu, inner_product_relu = _rectified(convolution.forward), _rectified(dense.forward)


def relu_backward_bias(a, reads, writes):
    """dx = dy where y > 0; db[c] = the sum of dx over all axes but the channels'."""
    (y, dy), (dx, db) = reads, writes
    dx[...] = passed(y, dy)
    dense.backward_bias(None, [dx], [db])


def pooling_backward_relu(a, reads, writes):
    """index y dy -> dx: pooling's, where a maximum that is positive stood."""
    (index, y, dy), (dx,) = reads, writes
    positive = np.empty_like(dx)
    pooling.backward(a, [index, (y > 0).astype(dx.dtype)], [positive])
    pooling.backward(a, [index, dy], [dx])
    dx[...] = passed(positive, dx)


# ---- BatchNorm, Scale, and perhaps ReLU


def _scaled(normalize):
    def forward_scale(a, reads, writes):
        """The last two reads are gamma and beta."""
        *given, gamma, beta = reads
        normalize(a, given, writes)
        normalization.scale_forward(None, [writes[0], gamma, beta], writes[:1])

    return forward_scale


def batch_norm_backward_scale(a, reads, writes):
    """x mean variance gamma beta dy -> dx dgamma dbeta"""
    x, mean, variance, gamma, _, dy = reads
    dx, dgamma, dbeta = writes
    normalization.scale_backward_filter(None, [normalization.normalized(a, x, mean, variance), dy], [dgamma])
    dense.backward_bias(None, [dy], [dbeta])
    normalization.batch_norm_backward(a, [x, mean, variance, dy * normalization.per_channel(gamma, dy)], [dx])


def batch_norm_backward_scale_relu(a, reads, writes):
    """The same, of the gradient where y > 0: y as forward had it."""
    x, mean, variance, gamma, beta, dy = reads
    y = normalization.normalized(a, x, mean, variance)
    normalization.scale_forward(None, [y, gamma, beta], [y])
    batch_norm_backward_scale(a, [*reads[:-1], passed(y, dy)], writes)


batch_norm_scale = _scaled(normalization.batch_norm_forward)
batch_norm_inference_scale = _scaled(normalization.batch_norm_inference)
batch_norm_scale_relu, batch_norm_inference_scale_relu = map(_rectified, (batch_norm_scale, batch_norm_inference_scale))
