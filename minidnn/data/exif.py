"""The orientation that a camera notes in a JPEG (EXIF): which way up its pixels are."""

from __future__ import annotations

from typing import Any

import numpy as np

_ORIENTATION = 0x0112  # the tag
_TURNED = {2: (1, -1), 3: (-1, -1), 4: (-1, 1), 5: (1, 1), 6: (1, -1), 7: (-1, -1), 8: (-1, 1)}
_LYING = 5  # from this one on rows and columns change places


def orientation(image: Any) -> int:
    """1 to 8, of Pillow's image; 1, upright, if it says nothing that can be read, as OpenCV has it."""
    if image.format != "JPEG":
        return 1
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # whatever Pillow raises at a broken EXIF: the pixels are whole, and OpenCV takes them
        return 1
    return value if value in _TURNED else 1


def upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """The pixels (C, H, W) as they are to be seen, a view of an array (H, W, C)."""
    if orientation not in _TURNED:
        return pixels
    rows, columns = _TURNED[orientation]
    result = pixels.swapaxes(1, 2) if orientation >= _LYING else pixels
    return np.ascontiguousarray(result[:, ::rows, ::columns].transpose(1, 2, 0)).transpose(2, 0, 1)
