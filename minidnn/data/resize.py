"""Images in another size, by Pillow's bilinear filter, which widens where an image shrinks (antialiasing)."""

from __future__ import annotations

import numpy as np

from minidnn.data.decoding import pillow


def resized(image: np.ndarray, size: tuple[int, ...], part: tuple[int, int, int, int] | None = None) -> np.ndarray:
    """The image (C, H, W), or a part of it (top, left, height, width), in this height and width; uint8 if the image is,
    else float32. Raises DataError if Pillow is not installed."""
    top, left, rows, columns = part or (0, 0, *image.shape[1:])
    if part is None and image.shape[1:] == tuple(size):
        return image
    module = pillow()
    how = ((size[1], size[0]), module.Resampling.BILINEAR, (left, top, left + columns, top + rows))
    if image.dtype == np.uint8 and len(image) == 3:
        pixels = module.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0)))
        return np.asarray(pixels.resize(*how)).transpose(2, 0, 1)
    planes = image if image.dtype == np.uint8 else image.astype(np.float32)
    return np.stack([np.asarray(module.fromarray(np.ascontiguousarray(plane)).resize(*how)) for plane in planes])
