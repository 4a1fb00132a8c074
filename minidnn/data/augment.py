"""The first half of a sample's transformation: from an image of any size to one of a fixed shape, changed at random.

In this order: resize, or in TRAIN a random part that is resized to the crop; rotate; cut, if sizes still differ;
brightness, contrast, saturation. Crop, mean, scale and mirror follow (data/transform.py). All random choices are a
function of (seed, the sample's number since training began), and that number names an epoch and an index.
docs/training.md has the formulas. A random resized crop is that of Szegedy et al., Going deeper with convolutions,
section 6.

All arithmetic is elementwise or on whole numbers, so results depend neither on the machine nor on the number of
workers. Images of bytes stay images of bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from minidnn.data.dataset import DataError
from minidnn.data.random import below, fractions
from minidnn.data.resize import resized

ROW, COLUMN = 1, 2  # lanes of the random numbers (data/random.py), as of the crop in data/transform.py
_AREA, _RATIO, _ROTATION, _BRIGHTNESS, _CONTRAST, _SATURATION = 4, 5, 6, 7, 8, 9
_LUMA = {"RGB": (0.299, 0.587, 0.114), "BGR": (0.114, 0.587, 0.299)}  # ITU-R BT.601
_LONGEST = 1 << 15  # pixels of a side after resize, so that no slim image takes all memory
_ONE = 1 << 16  # 1 as a fixed-point number of the rotation


@dataclass(frozen=True)
class Augment:
    """Images -> images of one shape. The defaults change nothing; their meaning is that of the fields of
    `transform_param` (schema/sources.py)."""

    resize: tuple[int, ...] = ()  # the shorter side, or height and width
    crop: int = 0  # height and width of the crop
    area: tuple[float, ...] = ()  # least and largest part of the image's area that is cut and resized to the crop
    ratio: tuple[float, ...] = (3 / 4, 4 / 3)  # least and largest ratio of its width to its height
    rotation: float = 0.0  # degrees at most, to either side
    brightness: float = 0.0  # these three: the factor lies between 1 - this and 1 + this
    contrast: float = 0.0
    saturation: float = 0.0
    order: str = "BGR"  # of the channels
    train: bool = True
    seed: int = 0

    @property
    def interpolates(self) -> bool:
        """Whether values are made that lie between those of pixels, which labels do not bear."""
        return bool(self.resize or self.area or self.rotation)

    @property
    def coloured(self) -> bool:
        return bool(self.brightness or self.contrast or self.saturation)

    @property
    def changes(self) -> bool:
        """Whether an image of the right shape is changed."""
        return self.interpolates or self.coloured

    def shape(self, sample: tuple[int, ...], name: str = "data") -> tuple[int, ...]:
        """The shape of each image made of images (C, H, W), where H and W are 0 if they differ. Raises DataError if
        these fields do not fit them."""
        if len(sample) != 3:
            if self.changes:
                raise DataError(f"{name}: resize, rotation and colours need images (C, H, W), but a sample is {sample}")
            return sample
        channels, height, width = sample
        if self.coloured and channels not in (1, 3):
            raise DataError(f"{name}: brightness, contrast and saturation need 1 or 3 channels, not {channels}")
        if self.saturation and channels != 3:
            raise DataError(f"{name}: saturation needs 3 channels, not {channels}")
        if self.area:
            return channels, self.crop, self.crop
        height, width = self._size(height, width)
        if not height or not width:
            if not self.crop:
                what = "images have sizes of their own: give crop_size, or resize with a height and a width"
                raise DataError(f"{name}: {what}, such as resize: [256, 256]")
            return channels, self.crop, self.crop
        return channels, height, width

    def __call__(self, image: np.ndarray, number: int, shape: tuple[int, ...], decoded: bool = False) -> np.ndarray:
        """The image of this shape that is made of one of shape (C, H, W).

        number:  the sample's number since training began
        decoded: whether its channels, if there are three, are red, green and blue, and not in the wanted order

        Raises DataError if the image is smaller than the crop."""
        counter = np.array([number])
        if self.area:
            image = resized(image, shape[1:], self._part(image.shape[1:], counter))
        elif self.resize:
            image = resized(image, self._size(*image.shape[1:]))
        _, rows, columns = shape
        top, left = self._place(image.shape[1:], (rows, columns), counter)
        if self.rotation:
            image = rotated(image, self._around(counter, _ROTATION, 0.0, self.rotation), (top, left, rows, columns))
        else:
            image = image[:, top : top + rows, left : left + columns]
        if decoded and len(image) == 3 and self.order == "BGR":
            image = image[::-1]
        return self._recoloured(image, counter) if self.coloured else image

    def _around(self, counter: np.ndarray, lane: int, middle: float, spread: float) -> float:
        return middle + spread * (2 * float(fractions(self.seed, counter, lane)[0]) - 1)

    def _size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width once the image is resized; 0 if they differ from image to image."""
        if len(self.resize) == 2:
            return self.resize[0], self.resize[1]
        if not self.resize or not height or not width:
            return height, width
        side, shorter = self.resize[0], min(height, width)
        if max(height, width) * side > _LONGEST * shorter:
            what = f"an image of {height}×{width} would be longer than {_LONGEST} pixels"
            raise DataError(f"{what} once its shorter side has {side}: give resize a height and a width")
        return (2 * height * side + shorter) // (2 * shorter), (2 * width * side + shorter) // (2 * shorter)

    def _part(self, size: tuple[int, ...], counter: np.ndarray) -> tuple[int, int, int, int]:
        """(top, left, height, width) of a random part of an image of this height and width."""
        share, slant = (float(fractions(self.seed, counter, lane)[0]) for lane in (_AREA, _RATIO))
        area = (self.area[0] + (self.area[1] - self.area[0]) * share) * size[0] * size[1]
        ratio = self.ratio[0] * (self.ratio[1] / self.ratio[0]) ** slant
        height, width = (
            min(max(round(math.sqrt(n)), 1), most) for n, most in zip((area / ratio, area * ratio), size, strict=True)
        )
        return *self._drawn((size[0] - height, size[1] - width), counter), height, width

    def _place(self, size: tuple[int, ...], cut: tuple[int, ...], counter: np.ndarray) -> tuple[int, int]:
        """Where to cut so much of an image of this size: at random in TRAIN, else in the middle."""
        rooms = size[0] - cut[0], size[1] - cut[1]
        if rooms == (0, 0):
            return 0, 0
        if min(rooms) < 0:
            what = f"an image of {size[0]}×{size[1]} is smaller than {cut[0]}×{cut[1]}"
            raise DataError(f"{what}: give transform_param resize: [{max(cut)}], the length of its shorter side")
        return self._drawn(rooms, counter) if self.train else (rooms[0] // 2, rooms[1] // 2)

    def _drawn(self, rooms: tuple[int, int], counter: np.ndarray) -> tuple[int, int]:
        """A row and a column, each from 0 to its room."""
        row, column = (below(self.seed, counter, n, r + 1)[0] for n, r in zip((ROW, COLUMN), rooms, strict=True))
        return int(row), int(column)

    def _recoloured(self, image: np.ndarray, counter: np.ndarray) -> np.ndarray:
        """The image with other brightness, contrast and saturation; bytes stay between 0 and 255."""
        is_bytes, x = image.dtype == np.uint8, image.astype(np.float32)
        spreads = {_BRIGHTNESS: self.brightness, _CONTRAST: self.contrast, _SATURATION: self.saturation}
        for lane, spread in spreads.items():
            if not spread:
                continue
            factor = np.float32(self._around(counter, lane, 1.0, spread))
            if lane == _BRIGHTNESS:
                x *= factor
            else:
                grey = self._grey(x)
                base = np.float32(grey.mean(dtype=np.float64)) if lane == _CONTRAST else grey
                x -= base
                x *= factor
                x += base
            if is_bytes:
                np.clip(x, 0, 255, out=x)
        return np.rint(x, out=x).astype(np.uint8) if is_bytes else x

    def _grey(self, x: np.ndarray) -> np.ndarray:
        """The luma of each pixel, float32 (H, W)."""
        if len(x) == 1:
            return x[0].copy()
        first, second, third = (np.float32(w) for w in _LUMA[self.order])
        return x[0] * first + x[1] * second + x[2] * third


def rotated(image: np.ndarray, degrees: float, window: tuple[int, int, int, int]) -> np.ndarray:
    """A window (top, left, height, width) of the image (C, H, W), rotated counterclockwise around its middle, in the
    image's type.

    Bilinear between the four nearest pixels. Where the image has none, its nearest edge goes on. Places are whole
    multiples of 2^-17 pixel and weights of 2^-16, so that sums of bytes are exact in float32."""
    channels, height, width = image.shape
    top, left, rows, columns = window
    cos, sin = (round(f(math.radians(degrees)) * _ONE) for f in (math.cos, math.sin))
    dy = 2 * np.arange(top, top + rows, dtype=np.int64)[:, None] - (height - 1)  # in half pixels from the middle
    dx = 2 * np.arange(left, left + columns, dtype=np.int64) - (width - 1)
    y, x = (height - 1) * _ONE + sin * dx + cos * dy, (width - 1) * _ONE + cos * dx - sin * dy
    (y0, y1, fy), (x0, x1, fx) = _neighbours(y, height), _neighbours(x, width)
    flat = image.reshape(channels, -1)
    out = np.zeros((channels, rows, columns), np.float32)
    for line, wy in ((y0, 256 - fy), (y1, fy)):
        for column, wx in ((x0, 256 - fx), (x1, fx)):
            out += np.take(flat, line * width + column, axis=1) * (wy * wx).astype(np.float32)
    out *= np.float32(1 / _ONE)
    return np.floor(out + np.float32(0.5)).astype(np.uint8) if image.dtype == np.uint8 else out


def _neighbours(place: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For positions in units of 2^-17 pixel along an axis of this size: the pixel before, the pixel behind, and the
    weight of the latter in 256ths."""
    place = np.clip(place, 0, (size - 1) * 2 * _ONE)
    before = place >> 17
    return before, np.minimum(before + 1, size - 1), (place >> 9) & 255
