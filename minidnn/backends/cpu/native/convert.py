"""Conversions between float32 and the formats of 16 bits (halves.h, convert.c)."""

from __future__ import annotations

import ctypes

import numpy as np

from minidnn.backends.cpu.layout import address, physical
from minidnn.backends.cpu.native.binding import Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call
from minidnn.program import Op

FORMATS = "bfloat16", "float16"  # in the order of the enum in halves.h


def format_of(op: Op) -> int:
    """The number of the format of an op's tensors of 16 bits; 0 if it has none."""
    return next((FORMATS.index(t.dtype) for t in op.tensors if t.dtype in FORMATS), 0)


class Geometry(Mirrored):
    twin = "convert"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("rows", "width", "from_pitch", "to_pitch", "threads"))


def conversion(native: Native, source: np.ndarray, target: np.ndarray) -> Call:
    """A call that converts `source` to the format of `target`: arrays of one shape, of which one is float32 and the
    other has 16 bits. Each is one run of memory, or 2-D with rows that are."""
    run = native.function(f"convert_{source.dtype}_{target.dtype}")
    rows, width, pitches = 1, source.size, (0, 0)
    if not all(physical(t).flags.c_contiguous for t in (source, target)):
        rows, width = source.shape
        pitches = source.strides[0] // source.itemsize, target.strides[0] // target.itemsize
    return bound(run, Geometry(rows, width, *pitches, native.threads), address(source), address(target))
