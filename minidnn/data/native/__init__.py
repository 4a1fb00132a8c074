"""Our own C for images of bytes (pixels.c): bit for bit what Pillow and NumPy compute, several times as fast.

Without a compiler, Pillow and NumPy do."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from minidnn.compiled import NotCompiled, Sources

LEVELS = "x86-64-v3", "x86-64"  # what a wheel brings, the best first


def _options(level: str | None) -> tuple[str, ...]:
    """Each operation of a weight is rounded, as Pillow's are: so no instruction of a CPU changes a bit."""
    return "-O3", "-fPIC", "-ffp-contract=off", f"-march={level or 'native'}"


SOURCES = Sources(Path(__file__).parent, "what resizes images, once: a second", _options, lambda: LEVELS)


class _Axis(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("size", "first", "to", "n"))


@cache
def library() -> ctypes.CDLL | None:
    """The compiled functions; None without a compiler."""
    try:
        result = SOURCES.load()
    except NotCompiled:
        return None
    result.pixels_resize_bytes.restype = ctypes.c_int64
    result.pixels_resize.restype = result.pixels_scale.restype = None
    return result


def resized(image: np.ndarray, size: Sequence[int], part: Sequence[int]) -> np.ndarray | None:
    """A part (top, left, height, width) of an image (C, H, W) in this height and width, uint8, a view of an array
    (height, width, C). None if the image is not of bytes with its channels innermost, or without a compiler."""
    channels, height, width = image.shape
    innermost = image.strides[2] == channels and (channels == 1 or image.strides[0] == 1)
    if image.dtype != np.uint8 or not innermost or (c := library()) is None:
        return None
    top, left, rows, columns = part
    down, across = _Axis(height, top, top + rows, size[0]), _Axis(width, left, left + columns, size[1])
    count = ctypes.c_int64(channels)
    scratch = np.empty(c.pixels_resize_bytes(ctypes.byref(down), ctypes.byref(across), count), np.uint8)
    out = np.empty((*size, channels), np.uint8)
    c.pixels_resize(
        ctypes.byref(down), ctypes.byref(across), count, _address(image), ctypes.c_int64(image.strides[1]),
        _address(out), _address(scratch),
    )  # fmt: skip
    return out.transpose(2, 0, 1)


def scaled(image: np.ndarray, mean: np.ndarray, scale: float, out: np.ndarray) -> bool:
    """out = (image - mean of its channel) * scale, where image (C, H, W) is a view of bytes; out: float32, without
    gaps; mean: float32 (C,). False, and nothing is done, if these are others, or without a compiler."""
    if image.dtype != np.uint8 or out.dtype != np.float32 or not out.flags.c_contiguous or (c := library()) is None:
        return False
    three = ctypes.c_int64 * 3
    c.pixels_scale(
        three(*image.shape), three(*image.strides), _address(image), _address(mean), ctypes.c_float(scale),
        _address(out),
    )  # fmt: skip
    return True


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.__array_interface__["data"][0])
