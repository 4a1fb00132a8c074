"""Encoded images (BMP, GIF, JPEG, PNG, PPM, TIFF, WebP) as pixels; of several images in one file the first.

JPEGs are decoded by simplejpeg where it is installed: it is quicker, gives the same values as Pillow, and notices
missing data. The header's size is checked before anything of that size is allocated. An image is turned by EXIF where
its source asks for it (data/sources.py).
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from minidnn.data import exif, quiet, whole
from minidnn.data.dataset import DataError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
LARGEST = 1 << 28  # bytes of an encoded image, at most
PIXELS = 1 << 27  # of an image, at most: 384 MiB in colour
FEW, PIXELS_OF_A_BYTE = 1 << 24, 256  # a small file has no more pixels than FEW, or than this times its bytes
_SMALL = f" of a file this small: more than {FEW} need a byte for {PIXELS_OF_A_BYTE}"
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # of these suffixes; others may start programs
_JPEG_FORMS = {"RGB": "RGB", "L": "GRAY", "CMYK": "CMYK"}  # simplejpeg's words for Pillow's modes
_WORDS = {
    "UnidentifiedImageError": "not an image that Pillow knows",
    "DecompressionBombError": f"more than {PIXELS} pixels",
}
_GREY = ("1", "L", "LA", "La")  # Pillow's modes of images in grey, and those with more than 8 bits
_DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")


def pixels(data: bytes, channels: int, upright: bool = False) -> np.ndarray:
    """The pixels of an encoded image, uint8 (channels, H, W), a view of an array (H, W, channels).

    channels: 3: red, green, blue; 1: luma by ITU-R BT.601
    upright:  whether it is turned as its EXIF says

    Raises DataError if it is no image of these formats, if it is broken or not whole, if it has values of more than 8
    bits, or too many pixels."""
    with _opened(data) as image:
        whole.check(image, data)
        turn = exif.orientation(image) if upright else 1
        values = _by_simplejpeg(image, data)
        if values is None or (channels == 1 and values.shape[2] == 3):
            decoded = image if values is None else pillow().fromarray(values)
            values = np.asarray(decoded.convert("RGB" if channels == 3 else "L"))
    values = values.reshape(*values.shape[:2], -1)
    values = np.repeat(values, 3, 2) if values.shape[2] < channels else values
    return exif.upright(values.transpose(2, 0, 1), turn)


def _by_simplejpeg(image: Any, data: bytes) -> np.ndarray | None:
    """The values (H, W, 3) or (H, W, 1) of a JPEG; None of others. Raises ValueError if some of its data are missing,
    which Pillow fills in."""
    form = _JPEG_FORMS.get(image.mode) if image.format in ("JPEG", "MPO") else None
    if form is None or (decode := _simplejpeg()) is None:
        return None
    result = decode(data, colorspace=form, fastdct=False, fastupsample=False)
    return None if form == "CMYK" else result


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
        with quiet.here(), image.open(io.BytesIO(data), formats=FORMATS) as result:
            width, height = result.size
            most = min(PIXELS, max(FEW, PIXELS_OF_A_BYTE * len(data)))
            if width * height > most:
                what = f"at most {most} pixels are decoded"
                raise DataError(f"an image of {height}×{width}; {what}{'' if most == PIXELS else _SMALL}")
            if result.mode in _DEEP:
                raise DataError(f"its values have more than 8 bits (mode {result.mode}): save it with 8, or use npz")
            yield result
    except (MemoryError, DataError):
        raise
    except Exception as error:  # whatever Pillow and its plugins raise, the image is to blame
        words = str(error).removeprefix("Warning: ")  # libjpeg's word, of data that it would make up
        what = _WORDS.get(type(error).__name__) or words or type(error).__name__
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
