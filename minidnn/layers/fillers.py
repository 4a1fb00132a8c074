"""Caffe's fillers: the first values of a parameter.

The values depend on (seed, key) alone, where the key names layer and parameter. So a new layer does not change the
values of the others, and every machine with the same version of NumPy draws the same values.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

from minidnn.layers.base import ShapeError

Shape = tuple[int, ...]


def fill(filler: Any, shape: Shape, seed: int, key: str) -> np.ndarray:
    """The first values of a parameter, float32. Raises ShapeError if the filler cannot fill this shape.

    filler: a FillerParameter; None: zeros, as in Caffe
    shape:  Caffe's blob shape, so that fan_in = count / shape[0]
    seed:   a whole number from 0 to 2^64 - 1
    key:    the name "<layer>.<parameter>", which decides the values together with the seed
    """
    if filler is None:
        return np.zeros(shape, np.float32)
    check_fill(filler, shape, key)
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, zlib.crc32(key.encode())], np.uint64)))
    return np.ascontiguousarray(_FILLERS[filler.type](filler, shape, rng), np.float32)


def check_fill(filler: Any, shape: Shape, what: str) -> None:
    """Raise ShapeError if the filler cannot fill this shape. what: the parameter, in the message."""
    if filler is not None and filler.type == "bilinear" and (len(shape) != 4 or shape[2] != shape[3]):
        raise ShapeError(f"{what}: a bilinear filler needs square kernels (num_output, C, k, k), got {shape}")


def _constant(filler, shape, rng):
    return np.full(shape, filler.value, np.float32)


def _uniform(filler, shape, rng):
    return _between(filler.min, filler.max, shape, rng)


def _gaussian(filler, shape, rng):
    values = _normal(filler.mean, filler.std, shape, rng)
    if filler.sparse >= 0:  # the number of nonzero weights per output, on average
        values *= rng.random(shape, np.float32) < filler.sparse / shape[0]
    return values


def _xavier(filler, shape, rng):
    bound = math.sqrt(3 / _fan(filler, shape))
    return _between(-bound, bound, shape, rng)


def _msra(filler, shape, rng):
    return _normal(0.0, math.sqrt(2 / _fan(filler, shape)), shape, rng)


def _positive_unitball(filler, shape, rng):
    values = rng.random(shape, np.float32)
    rows = values.reshape(shape[0], -1)
    rows /= rows.sum(axis=1, keepdims=True)  # each output's weights sum to 1
    return values


def _bilinear(filler, shape, rng):
    k = shape[3]
    f = math.ceil(k / 2)
    c = (k - 1) / (2 * f)
    line = 1 - np.abs(np.arange(k) / f - c)
    return np.broadcast_to(np.outer(line, line), shape)


def _between(low, high, shape, rng):
    """Uniform float32 values. They are made without a float64 copy: a layer of VGG has 100 million weights."""
    values = rng.random(shape, np.float32)
    values *= high - low
    values += low
    return values


def _normal(mean, std, shape, rng):
    values = rng.standard_normal(shape, np.float32)
    values *= std
    values += mean
    return values


def _fan(filler: Any, shape: Shape) -> float:
    count = math.prod(shape)
    fan_in = count / shape[0]
    fan_out = count / shape[1] if len(shape) > 1 else count
    return {"FAN_IN": fan_in, "FAN_OUT": fan_out, "AVERAGE": (fan_in + fan_out) / 2}[filler.variance_norm]


_FILLERS = {
    "constant": _constant,
    "uniform": _uniform,
    "gaussian": _gaussian,
    "xavier": _xavier,
    "msra": _msra,
    "positive_unitball": _positive_unitball,
    "bilinear": _bilinear,
}
