"""BatchNorm and Scale, alone and fused (programs/fusion/)."""

from __future__ import annotations

import numpy as np

from minidnn.backends.reference.activation import passed, rectified
from minidnn.backends.reference.bias import backward_bias
from minidnn.backends.reference.channels import other_axes, per_channel
from minidnn.backends.reference.multi_tensor import multi_tensor

# ---- BatchNorm


def normalized(a, x, mean, variance):
    """(x - mean) / sqrt(variance + eps)."""
    return (x - per_channel(mean, x)) / np.sqrt(per_channel(variance, x) + a.eps)


def batch_norm_moments(a, reads, writes):
    """x -> mean variance, the batch's mean and its biased variance."""
    (x,), (mean, variance) = reads, writes
    mean[...] = x.mean(other_axes(x))
    variance[...] = x.var(other_axes(x))


def batch_norm_merge_moments(a, reads, writes):
    """mean variance mean variance ... -> mean variance, of all values: each pair is of as many of them."""
    means, variances = (np.stack(reads[i::2]).astype(np.float64) for i in range(2))
    mean, variance = writes
    mean[...] = means.mean(0)
    variance[...] = (variances + (means - means.mean(0)) ** 2).mean(0)


def batch_norm_merge_sums(a, reads, writes):
    """x y x y ... -> the sum of all x, and that of all y."""
    for i, total in enumerate(writes):
        total[...] = np.stack(reads[i::2]).astype(np.float64).sum(0)


def batch_norm_normalize(a, reads, writes):
    """x mean variance -> y."""
    x, mean, variance = reads
    writes[0][...] = normalized(a, x, mean, variance)


def batch_norm_forward(a, reads, writes):
    """x -> y mean variance, by the batch's mean and its biased variance."""
    (x,), (y, mean, variance) = reads, writes
    batch_norm_moments(a, reads, [mean, variance])
    y[...] = normalized(a, x, mean, variance)


def batch_norm_statistics(a, reads, writes):
    """mean variance mean_sum variance_sum factor -> the last three. Each becomes fraction * itself + new, where new is
    the mean, the variance * m / (m - 1) (unbiased, m = a.count), or 1. Mean and variance may have rows, one for each
    batch, which come in their order."""
    mean_sum, variance_sum, factor = writes
    means, variances = (t.reshape(-1, mean_sum.size) for t in reads[:2])
    unbiased = a.count / (a.count - 1) if a.count > 1 else 1.0
    for mean, variance in zip(means, variances, strict=True):
        factor[...] = a.fraction * factor + 1
        mean_sum[...] = a.fraction * mean_sum + mean
        variance_sum[...] = a.fraction * variance_sum + unbiased * variance


def batch_norm_keep(a, reads, writes):
    """means variances mean variance iteration -> the first two, of which the row of this micro-batch is set."""
    *_, mean, variance, iteration = reads
    row = int(iteration[0]) % a.every
    for rows, new in zip(writes, (mean, variance), strict=True):
        rows.reshape(a.every, -1)[row] = new


def batch_norm_backward(a, reads, writes):
    """dx = (dy - mean(dy) - xhat mean(dy xhat)) / sqrt(variance + eps)."""
    (x, mean, variance, dy), (dx,) = reads, writes
    deviation = np.sqrt(per_channel(variance, x) + a.eps)
    xhat = (x - per_channel(mean, x)) / deviation
    along = other_axes(x)
    centred = dy - dy.mean(along, keepdims=True) - xhat * (dy * xhat).mean(along, keepdims=True)
    dx[...] = centred / deviation


def batch_norm_backward_sums(a, reads, writes):
    """x dy mean variance -> the sums of dy xhat and of dy."""
    (x, dy, mean, variance), (of_product, of_dy) = reads, writes
    scale_backward_filter(None, [normalized(a, x, mean, variance), dy], [of_product])
    backward_bias(None, [dy], [of_dy])


def batch_norm_backward_data(a, reads, writes):
    """x dy mean variance, the sums of dy xhat and of dy over a.count values -> dx."""
    (x, dy, mean, variance, of_product, of_dy), (dx,) = reads, writes
    of_xhat, constant = (per_channel(t / np.float32(a.count), x) for t in (of_product, of_dy))
    centred = dy - constant - normalized(a, x, mean, variance) * of_xhat
    dx[...] = centred / np.sqrt(per_channel(variance, x) + a.eps)


def running(total, factor):
    """A running statistic from its sum; 0 before the first update."""
    return total / factor[0] if factor[0] else np.zeros_like(total)


def batch_norm_inference(a, reads, writes):
    """x mean_sum variance_sum factor -> y, by the running statistics."""
    (x, mean_sum, variance_sum, factor), (y,) = reads, writes
    y[...] = normalized(a, x, running(mean_sum, factor), running(variance_sum, factor))


def batch_norm_inference_backward(a, reads, writes):
    """dx = dy / sqrt(variance + eps), by the running variance."""
    (variance_sum, factor, dy), (dx,) = reads, writes
    dx[...] = dy / np.sqrt(per_channel(running(variance_sum, factor), dy) + a.eps)


# ---- Scale


def scale_forward(a, reads, writes):
    """y = x gamma (+ beta), by channel."""
    (x, gamma, *beta), (y,) = reads, writes
    y[...] = x * per_channel(gamma, x)
    if beta:
        y += per_channel(beta[0], x)


def scale_backward_filter(a, reads, writes):
    """dgamma[c] = the sum of x dy over all axes but the channels'."""
    (x, dy), (dgamma,) = reads, writes
    dgamma[...] = (x * dy).sum(other_axes(x))


def scale_backward_data(a, reads, writes):
    """dx = dy gamma, by channel."""
    (gamma, dy), (dx,) = reads, writes
    dx[...] = dy * per_channel(gamma, dy)


# ---- BatchNorm with Scale, and perhaps a sum, and ReLU (programs/fusion/normalization.py)


def batch_norm_normalize_scale(a, reads, writes):
    """x mean variance gamma beta -> y."""
    (x, mean, variance, gamma, beta), (y,) = reads, writes
    y[...] = normalized(a, x, mean, variance)
    scale_forward(None, [y, gamma, beta], [y])


def batch_norm_normalize_scale_relu(a, reads, writes):
    """x mean variance gamma beta -> y, where y = ReLU(...)."""
    batch_norm_normalize_scale(a, reads, writes)
    writes[0][...] = rectified(writes[0])


def batch_norm_normalize_scale_add_relu(a, reads, writes):
    """x shortcut mean variance gamma beta -> y, where y = ReLU(... + shortcut)."""
    x, shortcut, *given = reads
    batch_norm_normalize_scale(a, [x, *given], [u := np.empty_like(x)])  # y may be the shortcut
    writes[0][...] = rectified(u + shortcut)


def batch_norm_inference_scale(a, reads, writes):
    """x mean_sum variance_sum factor gamma beta -> y."""
    *given, gamma, beta = reads
    batch_norm_inference(a, given, writes)
    scale_forward(None, [writes[0], gamma, beta], writes)


def batch_norm_inference_scale_relu(a, reads, writes):
    """x mean_sum variance_sum factor gamma beta -> y, where y = ReLU(...)."""
    batch_norm_inference_scale(a, reads, writes)
    writes[0][...] = rectified(writes[0])


def batch_norm_inference_scale_add_relu(a, reads, writes):
    """x shortcut mean_sum variance_sum factor gamma beta -> y, where y = ReLU(... + shortcut)."""
    x, shortcut, *given = reads
    batch_norm_inference_scale(a, [x, *given], [u := np.empty_like(x)])
    writes[0][...] = rectified(u + shortcut)


def batch_norm_backward_scale(a, reads, writes):
    """x mean variance gamma beta dy -> dx dgamma dbeta."""
    x, mean, variance, gamma, _, dy = reads
    dx, dgamma, dbeta = writes
    scale_backward_filter(None, [normalized(a, x, mean, variance), dy], [dgamma])
    backward_bias(None, [dy], [dbeta])
    batch_norm_backward(a, [x, mean, variance, dy * per_channel(gamma, dy)], [dx])


def batch_norm_backward_scale_relu(a, reads, writes):
    """x mean variance gamma beta dy -> dx dgamma dbeta. dy passes where y > 0; y is computed as in forward."""
    x, mean, variance, gamma, beta, dy = reads
    y = normalized(a, x, mean, variance)
    scale_forward(None, [y, gamma, beta], [y])
    batch_norm_backward_scale(a, [*reads[:-1], passed(y, dy)], writes)


def let_through(a, reads):
    """x dy mean variance gamma beta ... -> the part of dy that passes where y > 0; y is computed as in forward."""
    x, dy, mean, variance, gamma, beta = reads[:6]
    y = normalized(a, x, mean, variance)
    scale_forward(None, [y, gamma, beta], [y])
    return passed(y, dy)


def batch_norm_backward_sums_scale(a, reads, writes):
    """x dy mean variance gamma beta -> dgamma dbeta."""
    batch_norm_backward_sums(a, reads[:4], writes)


def batch_norm_backward_sums_scale_relu(a, reads, writes):
    """x dy mean variance gamma beta -> dgamma dbeta."""
    batch_norm_backward_sums(a, [reads[0], let_through(a, reads), *reads[2:4]], writes)


def batch_norm_backward_data_scale(a, reads, writes):
    """x dy mean variance gamma beta dgamma dbeta -> dx."""
    x, dy, mean, variance, gamma, _, dgamma, dbeta = reads
    given = [x, dy * per_channel(gamma, dy), mean, variance, gamma * dgamma, gamma * dbeta]
    batch_norm_backward_data(a, given, writes)


def batch_norm_backward_data_scale_relu(a, reads, writes):
    """x dy mean variance gamma beta dgamma dbeta -> dx."""
    batch_norm_backward_data_scale(a, [reads[0], let_through(a, reads), *reads[2:]], writes)


KINDS = {
    "batch_norm.forward": batch_norm_forward,
    "batch_norm.moments": batch_norm_moments,
    "batch_norm.merge_moments": batch_norm_merge_moments,
    "batch_norm.merge_sums": batch_norm_merge_sums,
    "batch_norm.normalize": batch_norm_normalize,
    "batch_norm.normalize_scale": batch_norm_normalize_scale,
    "batch_norm.normalize_scale_relu": batch_norm_normalize_scale_relu,
    "batch_norm.normalize_scale_add_relu": batch_norm_normalize_scale_add_relu,
    "batch_norm.backward": batch_norm_backward,
    "batch_norm.backward_scale": batch_norm_backward_scale,
    "batch_norm.backward_scale_relu": batch_norm_backward_scale_relu,
    "batch_norm.backward_sums": batch_norm_backward_sums,
    "batch_norm.backward_sums_scale": batch_norm_backward_sums_scale,
    "batch_norm.backward_sums_scale_relu": batch_norm_backward_sums_scale_relu,
    "batch_norm.backward_data": batch_norm_backward_data,
    "batch_norm.backward_data_scale": batch_norm_backward_data_scale,
    "batch_norm.backward_data_scale_relu": batch_norm_backward_data_scale_relu,
    "batch_norm.statistics": batch_norm_statistics,
    "batch_norm.keep": batch_norm_keep,
    "batch_norm.statistics_multi_tensor": multi_tensor(batch_norm_statistics),
    "batch_norm.inference": batch_norm_inference,
    "batch_norm.inference_scale": batch_norm_inference_scale,
    "batch_norm.inference_scale_relu": batch_norm_inference_scale_relu,
    "batch_norm.inference_scale_add_relu": batch_norm_inference_scale_add_relu,
    "batch_norm.inference_backward": batch_norm_inference_backward,
    "scale.forward": scale_forward,
    "scale.backward_filter": scale_backward_filter,
    "scale.backward_data": scale_backward_data,
}
