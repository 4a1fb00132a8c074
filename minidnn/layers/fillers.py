"""Caffe's fillers: the first values of a parameter. And two of ours, which are tables of a formula: `sinusoid` and
`diffusion`.

The values depend on (seed, key) alone, where the key names layer and parameter. So a new layer does not change the
values of the others, and every machine with the same version of NumPy draws the same values.
"""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from minidnn.layers.base import ShapeError
from minidnn.layers.rows import Rows, split

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Values:
    """A filler of our own: these values, as many as the parameter has."""

    array: np.ndarray
    type: ClassVar[str] = "values"


def fill(filler: Any, shape: Shape, seed: int, key: str) -> Rows:
    """The first values of a parameter, float32, drawn a few rows at a time.

    filler: a FillerParameter, or Values; None: zeros, as in Caffe
    shape:  Caffe's blob shape, so that fan_in = count / shape[0]
    seed:   a whole number from 0 to 2^64 - 1
    key:    the name "<layer>.<parameter>", which decides the values together with the seed

    Raises ShapeError if the filler cannot fill this shape.
    """
    check_fill(filler, shape, key)

    def pieces() -> Iterator[np.ndarray]:
        parts = [(last - first, *shape[1:]) for first, last in split(shape, 4)]
        if filler is None:
            yield from (np.zeros(part, np.float32) for part in parts)
            return
        rng = np.random.Generator(np.random.Philox(key=np.array([seed, zlib.crc32(key.encode())], np.uint64)))
        for values in _FILLERS[filler.type](filler, shape, parts, rng):
            yield np.ascontiguousarray(values, np.float32)

    return Rows(shape, np.dtype(np.float32), pieces)


def check_fill(filler: Any, shape: Shape, what: str) -> None:
    """Raise ShapeError if the filler cannot fill this shape. what: the parameter, in the message."""
    if filler is not None and filler.type == "bilinear" and (len(shape) != 4 or shape[2] != shape[3]):
        raise ShapeError(f"{what}: a bilinear filler needs square kernels (num_output, C, k, k), got {shape}")
    if filler is not None and filler.type == "sinusoid" and (len(shape) != 2 or shape[1] < 4 or shape[1] % 2):
        raise ShapeError(f"{what}: a sinusoid filler needs rows of an even length, at least (times, 4), got {shape}")
    if filler is not None and filler.type == "diffusion":
        if len(shape) != 2 or shape[1] != 2:
            raise ShapeError(f"{what}: a diffusion filler needs two numbers for each time, (times, 2), got {shape}")
        if not 0 < filler.min <= filler.max < 1:
            raise ShapeError(
                f"{what}: a diffusion filler's noise grows from min to max, between 0 and 1, such as min: 0.0001 and "
                f"max: 0.02; got {filler.min:g} and {filler.max:g}"
            )


# Each gives the values of all parts, one after the other. `parts`: the shapes of consecutive rows of `shape`.


def _constant(filler, shape, parts, rng):
    for part in parts:
        yield np.full(part, filler.value, np.float32)


def _uniform(filler, shape, parts, rng):
    return _between(filler.min, filler.max, parts, rng)


def _gaussian(filler, shape, parts, rng):
    if filler.sparse < 0:
        yield from _normal(filler.mean, filler.std, parts, rng)
        return
    after = copy.deepcopy(rng)  # draws what decides the zeros: it is drawn after all the values
    for part in parts:
        after.standard_normal(part, np.float32)
    for values in _normal(filler.mean, filler.std, parts, rng):
        # `sparse` is the number of nonzero weights per output, on average
        values *= after.random(values.shape, np.float32) < filler.sparse / shape[0]
        yield values


def _xavier(filler, shape, parts, rng):
    bound = math.sqrt(3 / _fan(filler, shape))
    return _between(-bound, bound, parts, rng)


def _msra(filler, shape, parts, rng):
    return _normal(0.0, math.sqrt(2 / _fan(filler, shape)), parts, rng)


def _positive_unitball(filler, shape, parts, rng):
    for part in parts:
        values = rng.random(part, np.float32)
        rows = values.reshape(part[0], -1)
        rows /= rows.sum(axis=1, keepdims=True)  # each output's weights sum to 1
        yield values


def _bilinear(filler, shape, parts, rng):
    k = shape[3]
    f = math.ceil(k / 2)
    c = (k - 1) / (2 * f)
    line = 1 - np.abs(np.arange(k) / f - c)
    for part in parts:
        yield np.broadcast_to(np.outer(line, line), part)


def _sinusoid(filler, shape, parts, rng):
    """Row t: sin(t * w), then cos(t * w), for w from 1 to 1/10000 in geometric steps. That is Tensor2Tensor's form of
    Vaswani et al., "Attention Is All You Need" (2017), section 3.5, which diffusion models take, too."""
    half = shape[1] // 2
    frequencies = 10000.0 ** (-np.arange(half) / (half - 1))
    for first, angles in _rows(parts):
        angles = (first + angles)[:, None] * frequencies
        yield np.concatenate([np.sin(angles), np.cos(angles)], 1)


def _diffusion(filler, shape, parts, rng):
    """Row t: the factors of an image and of its noise after t + 1 steps, sqrt(a) and sqrt(1 - a). a is the product of
    1 - b over these steps, and b grows evenly from `min` to `max` (Ho et al., "Denoising Diffusion Probabilistic
    Models", 2020, equation 4)."""
    kept = np.cumprod(1 - np.linspace(filler.min, filler.max, shape[0]))
    table = np.sqrt(np.stack([kept, 1 - kept], 1))
    for first, rows in _rows(parts):
        yield table[first + rows]


def _rows(parts):
    """(the first row, 0 up to the last row of the part counted from it) of each part."""
    first = 0
    for part in parts:
        yield first, np.arange(part[0])
        first += part[0]


def _values(filler, shape, parts, rng):
    flat, at = filler.array.reshape(-1), 0
    for part in parts:
        size = math.prod(part)
        yield flat[at : at + size].reshape(part)
        at += size


def _between(low, high, parts, rng):
    """Uniform float32 values."""
    for part in parts:
        values = rng.random(part, np.float32)
        values *= high - low
        values += low
        yield values


def _normal(mean, std, parts, rng):
    for part in parts:
        values = rng.standard_normal(part, np.float32)
        values *= std
        values += mean
        yield values


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
    "sinusoid": _sinusoid,
    "diffusion": _diffusion,
    "values": _values,
}
