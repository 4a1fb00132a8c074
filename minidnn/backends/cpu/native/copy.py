"""Copies past the caches, for the copy streams of the host's threads (copy.c)."""

from __future__ import annotations

import ctypes

import numpy as np

from minidnn.backends.cpu.native.binding import Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call


class Copied(Mirrored):
    twin = "copied"
    _fields_ = (("bytes", ctypes.c_int64),)


def copying(native: Native, to: np.ndarray, source: np.ndarray) -> Call:
    """A call that copies `source` to `to`, arrays of as many bytes, each contiguous, that do not overlap."""
    assert to.nbytes == source.nbytes and to.flags.c_contiguous and source.flags.c_contiguous
    return bound(native.function("copy_bytes"), Copied(to.nbytes), to.ctypes.data, source.ctypes.data)
