"""Counter-based random numbers: each is a function of (seed, counter, lane), so a run may begin anywhere.

They come from SplitMix64's output function over these three keys. No state is kept from one draw to the next. Each use
has a lane of its own, so that two uses draw different numbers.
"""

from __future__ import annotations

import functools

import numpy as np

_GAMMA = 0x9E3779B97F4A7C15


def words(seed: int, counters: np.ndarray, lane: int = 0) -> np.ndarray:
    """64 random bits per counter, uint64."""
    key = _key(seed, lane)
    return _mix(_mix(np.asarray(counters).astype(np.uint64) * np.uint64(_GAMMA) + key) ^ key)


@functools.lru_cache(maxsize=256)  # each sample asks for the same few lanes
def _key(seed: int, lane: int) -> np.ndarray:
    return _mix(np.array([(seed * _GAMMA + lane) & (2**64 - 1)], np.uint64))


def below(seed: int, counters: np.ndarray, lane: int, bound: int) -> np.ndarray:
    """A number in [0, bound) per counter, int64. Its bias of bound / 2**32 does not matter for crops."""
    high = words(seed, counters, lane) >> np.uint64(32)
    return (high * np.uint64(bound) >> np.uint64(32)).astype(np.int64)


def fractions(seed: int, counters: np.ndarray, lane: int) -> np.ndarray:
    """A number in [0, 1) per counter, float64, a multiple of 2^-53."""
    return (words(seed, counters, lane) >> np.uint64(11)) * 2.0**-53


def permutation(seed: int, epoch: int, n: int) -> np.ndarray:
    """The order of one epoch: the numbers from 0 to n - 1, the same on all machines and versions of NumPy."""
    return np.argsort(words(seed, np.arange(n), lane=-1 - epoch), kind="stable")


def _mix(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
