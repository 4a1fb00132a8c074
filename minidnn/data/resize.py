"""Images in another size, by Pillow's bilinear filter, which widens where an image shrinks (antialiasing).

Columns are resized first, then rows, with values of the image's type between: our own C (data/native/) does so, and
Pillow in two steps. In one step some versions of Pillow begin with the rows, which changes last bits."""

from __future__ import annotations

import numpy as np

from minidnn.data import native
from minidnn.data.decoding import pillow

Part = tuple[int, int, int, int]  # top, left, height, width


def resized(image: np.ndarray, size: tuple[int, ...], part: Part | None = None) -> np.ndarray:
    """The image (C, H, W), or a part of it, in this height and width; uint8 if the image is, else float32. Raises
    DataError if neither our own C nor Pillow is there for it."""
    if part is None and image.shape[1:] == tuple(size):
        return image
    part = part or (0, 0, *image.shape[1:])
    if (result := native.resized(image, size, part)) is not None:
        return result
    if image.dtype == np.uint8 and len(image) == 3:
        return by_pillow(image.transpose(1, 2, 0), size, part).transpose(2, 0, 1)
    planes = image if image.dtype == np.uint8 else image.astype(np.float32)
    return np.stack([by_pillow(plane, size, part) for plane in planes])


def by_pillow(pixels: np.ndarray, size: tuple[int, ...], part: Part) -> np.ndarray:
    """A part of pixels (H, W) or (H, W, 3) in this height and width. Raises DataError if Pillow is not installed."""
    module = pillow()
    top, left, rows, columns = part
    height, bilinear = len(pixels), module.Resampling.BILINEAR
    wide = module.fromarray(np.ascontiguousarray(pixels)).resize(
        (size[1], height), bilinear, (left, 0, left + columns, height)
    )
    return np.asarray(wide.resize((size[1], size[0]), bilinear, (0, top, size[1], top + rows)))
