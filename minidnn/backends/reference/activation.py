"""Functions of single elements and their gradients: ReLU, those of FUNCTIONS, and PReLU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minidnn.backends.reference.channels import other_axes, per_channel


def rectified(x, slope=0.0):
    """x where it is positive, slope * x elsewhere. Adding 0 turns the -0 that a slope of 0 makes into +0, which packing
    (memory/execution/compression.py) leaves out."""
    return np.where(x > 0, x, slope * x + 0)


def passed(saved, dy, slope=0.0):
    """The gradient: dy where `saved` is positive, slope * dy elsewhere. `saved` is x, y or the mask."""
    return np.where(saved > 0, dy, slope * dy)


def relu_forward(a, reads, writes):
    """x -> y (mask): y = x where x > 0, slope * x elsewhere; mask = x > 0, uint8."""
    (x,), (y, *mask) = reads, writes
    if mask:  # before y, which may have the bytes of x
        mask[0][...] = x > 0
    y[...] = rectified(x, a.negative_slope)


def relu_backward(a, reads, writes):
    """dx = dy where x > 0, slope * dy elsewhere. y has the sign of x unless the slope is negative."""
    (saved, *_, dy), (dx,) = reads, writes
    dx[...] = passed(saved, dy, a.negative_slope)


# ---- functions without parameters


def logistic(x):
    """1 / (1 + e^-x), without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def elu(x, alpha):
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def exponential(x, scale, shift):
    with np.errstate(over="ignore"):  # to inf, as on each device
        return np.exp(scale * x + shift)


def logarithm(x, scale, shift, outer):
    with np.errstate(divide="ignore", invalid="ignore"):  # of 0, -inf; of a negative number, NaN
        return outer * np.log(scale * x + shift)


def power(x, scale, shift, exponent):
    with np.errstate(all="ignore"):
        return np.power(scale * x + shift, exponent)


def sigmoid_like(v, slope):
    """The derivative by x of x / (1 + e^-v), where `slope` is that of v times x. It is 0 or 1 where v is large."""
    s = logistic(v)
    return s + slope * s * (1 - s)


def swish_slope(x, beta):
    v = np.clip(beta * x, -100, 100)  # beyond, it is 0 or 1
    return sigmoid_like(v, v)


def mish_slope(x):
    v = np.clip(x, -100, 100)  # beyond, it is 0 or 1
    t = np.tanh(np.logaddexp(0, v))
    return t + v * (1 - t * t) * logistic(v)


def normal_integral(x):
    """The integral of the normal distribution's density from -inf to x."""
    return np.vectorize(math.erfc, otypes=[x.dtype])(x * -math.sqrt(0.5)) / 2


error_function = np.vectorize(math.erf, otypes=[np.float64])


def hard_sigmoid(x, alpha, beta):
    return np.clip(alpha * x + beta, 0, 1)


def hard_sigmoid_slope(x, alpha, beta):
    v = alpha * x + beta
    return np.where((v > 0) & (v < 1), alpha, 0)


def hard_swish_slope(x):
    v = x / 6 + 0.5
    return np.where(v <= 0, 0, np.where(v >= 1, 1, x / 3 + 0.5))


def gelu_slope(x):
    x = np.clip(x, -40, 40)  # beyond, it is 0 or 1
    return normal_integral(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


BENT = math.sqrt(8 / math.pi)


def bent(x):
    """GELU's approximation is 0.5 x (1 + tanh(v / 2)) = x / (1 + e^-v), with this v."""
    with np.errstate(over="ignore"):
        return BENT * (x + 0.044715 * x * x * x)


def gelu_tanh_slope(x):
    x = np.clip(x, -40, 40)
    return sigmoid_like(bent(x), BENT * (x + 3 * 0.044715 * x * x * x))


# name -> y = f(x, numbers), and the slope f' of what backward reads, which READS of layers/unary.py says
FUNCTIONS: dict[str, Any] = {
    "sigmoid": (logistic, lambda y: y * (1 - y)),
    "tanh": (np.tanh, lambda y: 1 - y * y),
    "elu": (elu, lambda y, alpha: np.where(y > 0, 1, y + alpha)),
    "elu_falling": (elu, lambda x, alpha: np.where(x > 0, 1, alpha * np.exp(np.minimum(x, 0)))),
    "abs": (np.abs, np.sign),
    "linear": (lambda x, s, t: s * x + t, lambda _, s, t: s),
    "square": (lambda x, s, t: (s * x + t) ** 2, lambda x, s, t: 2 * s * (s * x + t)),
    "power": (power, lambda x, s, t, p: s * p * power(x, s, t, p - 1)),
    "exp": (exponential, lambda y, s, t: s * y),
    "log": (logarithm, lambda x, s, t, outer: outer * s / (s * x + t)),
    "bnll": (lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), lambda y: -np.expm1(-y)),
    "clip": (np.clip, lambda x, least, most: (x >= least) & (x <= most)),
    "threshold": (lambda x, threshold: np.where(np.isnan(x), x, x > threshold), None),
    "swish": (lambda x, beta: x * logistic(beta * x), swish_slope),
    "mish": (lambda x: x * np.tanh(np.logaddexp(0, x)), mish_slope),
    "gelu": (lambda x: x * normal_integral(x), gelu_slope),
    "gelu_tanh": (lambda x: x * logistic(bent(x)), gelu_tanh_slope),
    "erf": (error_function, lambda x: 2 / math.sqrt(math.pi) * np.exp(-np.square(np.clip(x, -40, 40)))),
    "hard_sigmoid": (hard_sigmoid, hard_sigmoid_slope),
    "hard_swish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), hard_swish_slope),
}


def unary_forward(a, reads, writes):
    """x -> y = f(x)."""
    (x,), (y,) = reads, writes
    y[...] = FUNCTIONS[a.function][0](x, *a.numbers)


def unary_backward(a, reads, writes):
    """(saved) dy -> dx = dy f', where `saved` is x or y."""
    (*_, dy), (dx,) = reads, writes
    dx[...] = dy * FUNCTIONS[a.function][1](reads[0], *a.numbers)


# ---- PReLU


def prelu_forward(a, reads, writes):
    """x slope -> y: x where x > 0, slope * x elsewhere, by channel."""
    (x, slope), (y,) = reads, writes
    y[...] = rectified(x, per_channel(slope, x))


def prelu_backward_data(a, reads, writes):
    """x slope dy -> dx: dy where x > 0, slope * dy elsewhere."""
    (x, slope, dy), (dx,) = reads, writes
    dx[...] = passed(x, dy, per_channel(slope, x))


def prelu_backward_filter(a, reads, writes):
    """x dy -> dslope, the sum of x dy where x is not positive, by channel or of all."""
    (x, dy), (dslope,) = reads, writes
    terms = np.where(x > 0, 0, x * dy)
    dslope[...] = terms.sum() if dslope.size == 1 else terms.sum(other_axes(x))


KINDS = {
    "relu.forward": relu_forward,
    "relu.backward": relu_backward,
    "unary.forward": unary_forward,
    "unary.backward": unary_backward,
    "prelu.forward": prelu_forward,
    "prelu.backward_data": prelu_backward_data,
    "prelu.backward_filter": prelu_backward_filter,
}
