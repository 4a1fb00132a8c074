"""Encoded images (JPEG, PNG and what else Pillow knows) as pixels.

JPEGs are decoded by simplejpeg where it is installed, for it is quicker and gives the same values as Pillow. The
header's size is checked before anything of that size is allocated. Nothing is rotated by EXIF, as in Caffe and
torchvision.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from minidnn.data.dataset import DataError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
LARGEST = 1 << 28  # bytes of an encoded image, at most
PIXELS = 1 << 27  # of an image, at most: 384 MiB in colour
_GREY = ("1", "L", "LA", "La")  # Pillow's modes of images in grey, and those with more than 8 bits
_DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")


def pixels(data: bytes, channels: int) -> np.ndarray:
    """The pixels of an encoded image, uint8 (channels, H, W), a view of an array (H, W, channels).

    channels: 3: red, green, blue; 1: luma by ITU-R BT.601

    Raises DataError if it is no image, if it is broken, if it has values of more than 8 bits, or too many pixels."""
    with _opened(data) as image:
        if channels == 3 and image.format == "JPEG" and image.mode == "RGB" and (decode := _simplejpeg()):
            return decode(data, colorspace="RGB", fastdct=False, fastupsample=False).transpose(2, 0, 1)
        result = np.asarray(image.convert("RGB" if channels == 3 else "L"))
    return result.transpose(2, 0, 1) if channels == 3 else result[None]


def channels(data: bytes) -> int:
    """1 if the image is stored in grey, else 3, from its header. Raises DataError as `pixels`."""
    with _opened(data) as image:
        return 1 if image.mode in _GREY else 3


def size(data: bytes) -> int:
    """The number of pixels, from the header. Raises DataError as `pixels`."""
    with _opened(data) as image:
        return image.size[0] * image.size[1]


@contextlib.contextmanager
def _opened(data: bytes) -> Iterator[Any]:
    """Pillow's image, of which the header is read and checked. All errors become DataErrors."""
    image = pillow()
    try:
        with image.open(io.BytesIO(data)) as result:
            width, height = result.size
            if width * height > PIXELS:
                raise DataError(f"an image of {height}×{width}; at most {PIXELS} pixels are decoded")
            if result.mode in _DEEP:
                raise DataError(f"its values have more than 8 bits (mode {result.mode}): save it with 8, or use npz")
            yield result
    except (MemoryError, DataError):
        raise
    except Exception as error:  # whatever Pillow and its plugins raise, the image is to blame
        what = "no image that Pillow knows" if type(error).__name__ == "UnidentifiedImageError" else str(error)
        raise DataError(f"not a whole image ({len(data)} bytes): {what}") from error


def pillow() -> Any:
    """Pillow's module Image. Raises DataError if it is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(
            "images are read by Pillow, which is not installed here: pip install 'minidnn[images]'"
        ) from error
    return Image


def _simplejpeg() -> Any:
    """simplejpeg's decoder; None if it is not installed."""
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return None
    return decode_jpeg
