"""Images in another size, by Pillow's bilinear filter, which widens where an image shrinks (antialiasing)."""

from __future__ import annotations

import numpy as np

from minidnn.data.dataset import DataError


def resized(image: np.ndarray, size: tuple[int, ...], part: tuple[int, int, int, int] | None = None) -> np.ndarray:
    """The image (C, H, W), or a part of it (top, left, height, width), in this height and width; uint8 if the image is,
    else float32. Raises DataError if Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        what = "images are resized by Pillow, which is not installed here"
        raise DataError(f"{what}: pip install 'minidnn[images]'") from error
    top, left, rows, columns = part or (0, 0, *image.shape[1:])
    if part is None and image.shape[1:] == tuple(size):
        return image
    how = ((size[1], size[0]), Image.Resampling.BILINEAR, (left, top, left + columns, top + rows))
    if image.dtype == np.uint8 and len(image) == 3:
        pixels = Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0)))
        return np.asarray(pixels.resize(*how)).transpose(2, 0, 1)
    planes = image if image.dtype == np.uint8 else image.astype(np.float32)
    return np.stack([np.asarray(Image.fromarray(np.ascontiguousarray(plane)).resize(*how)) for plane in planes])
