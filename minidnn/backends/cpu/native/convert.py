"""Conversions between float32 and the formats of 16 bits (convert.c)."""

from __future__ import annotations

import ctypes

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call


class Geometry(Mirrored):
    twin = "convert"

    _fields_ = (("size", ctypes.c_int64), ("threads", ctypes.c_int64))


def conversion(native: Native, source: np.ndarray, target: np.ndarray) -> Call:
    """A call that converts `source` to the format of `target`: arrays of one shape, each one run of memory. One of them
    is float32, the other has 16 bits."""
    run = native.function(f"convert_{source.dtype}_{target.dtype}")
    return bound(run, Geometry(source.size, native.threads), address(source), address(target))
