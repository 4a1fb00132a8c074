"""Caffe's transformation of samples: crop, subtract the mean, multiply by the scale, mirror; in this order.

The crop is random in TRAIN and central in TEST. `mirror: true` mirrors a random half of the samples, in TEST too, as in
Caffe. The random numbers are a function of (seed, the sample's number since training began). Steps that Caffe lacks
come first: sizes, rotation, colours (data/augment.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from minidnn.data import native
from minidnn.data.augment import COLUMN, ROW, Augment
from minidnn.data.dataset import DataError
from minidnn.data.masks import Masks
from minidnn.data.random import below

_MIRROR = 3  # its lane of the random numbers (data/random.py)


@dataclass(frozen=True)
class Transform:
    """Raw samples -> float32 samples as the net reads them. The defaults change only the type."""

    crop: int = 0  # height and width of the crop; 0: none
    mean: tuple[float, ...] = ()  # none, one value, or one per channel
    scale: float = 1.0
    mirror: bool = False
    train: bool = True
    seed: int = 0
    image: np.ndarray | None = field(default=None, compare=False)  # the mean of each pixel of a raw sample, (C, H, W)
    augment: Augment = field(default_factory=Augment)  # makes the raw samples
    masks: Masks | None = None  # of tokens

    def shape(self, sample: tuple[int, ...], name: str = "data") -> tuple[int, ...]:
        """The shape of a transformed sample, from that of the dataset's. Raises DataError if the transform does not fit
        it."""
        sample = self.augment.shape(sample, name)
        if len(sample) != 3:
            if self.crop or self.mirror or self.image is not None:
                raise DataError(
                    f"{name}: crop_size, mirror and mean_file need images (C, H, W), but a sample is {sample}"
                )
            return sample
        channels, height, width = sample
        if self.image is not None and self.image.shape != sample:
            raise DataError(f"{name}: mean_file holds a mean of shape {self.image.shape}, but a sample is {sample}")
        if len(self.mean) not in (0, 1, channels):
            raise DataError(f"{name}: {len(self.mean)} mean_values for {channels} channels; give 1 or all")
        if self.crop > min(height, width):
            raise DataError(f"{name}: crop_size {self.crop} exceeds the images' {height}×{width}")
        return (channels, self.crop, self.crop) if self.crop else sample

    def prepare(self) -> None:
        """Have the C that images of bytes need compiled and loaded, before processes share it (data/workers.py)."""
        if self.crop or self.mirror or self.augment.interpolates:
            native.library()

    def __call__(self, images: np.ndarray, numbers: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """The transformed samples, float32, of raw ones as `augment` leaves them.

        numbers: each sample's number since training began
        out:     where to write them; None: a new array"""
        windows = self.windows(images.shape[1:], numbers)
        if out is None:
            out = np.empty(
                (len(images), *images.shape[1:-2], self.crop, self.crop) if self.crop else images.shape, "f4"
            )
        mean = np.array(self.mean, np.float32).reshape(-1, *(1,) * (images.ndim - 2))
        if not (self.crop or self.mirror):
            out[:] = images
            self._scale(out, self.image, mean)
            return out
        of_channels = np.zeros(images.shape[1], np.float32)
        of_channels[:] = self.mean or 0
        for image, window, to in zip(images, windows, out, strict=True):
            seen = self._seen(image, window)
            if self.image is not None or not native.scaled(seen, of_channels, self.scale, to):
                to[:] = seen
                self._scale(to, None if self.image is None else self._seen(self.image, window), mean)
        return out

    def _scale(self, values: np.ndarray, image: np.ndarray | None, mean: np.ndarray) -> None:
        """Subtract the means from the values and multiply by the scale, in place."""
        if image is not None:
            values -= image
        if self.mean:
            values -= mean
        if self.scale != 1.0:
            values *= np.float32(self.scale)

    def _seen(self, image: np.ndarray, window: np.ndarray) -> np.ndarray:
        """The part of an image (C, H, W) that the net sees, as a view."""
        row, column, mirrored = window
        part = image[:, row : row + self.crop, column : column + self.crop] if self.crop else image
        return part[..., ::-1] if mirrored else part

    def windows(self, sample: tuple[int, ...], numbers: np.ndarray) -> np.ndarray:
        """The random part of the transform, for samples of this raw shape, as int32 (n, 3): for each sample the first
        row and column of its crop, and 1 if it is mirrored, else 0."""
        result = np.zeros((len(numbers), 3), np.int32)
        if self.crop:
            rows, columns = (size - self.crop + 1 for size in sample[1:])
            if self.train and (rows, columns) != (1, 1):  # images may be cut already (data/augment.py)
                result[:, 0] = below(self.seed, numbers, ROW, rows)
                result[:, 1] = below(self.seed, numbers, COLUMN, columns)
            else:
                result[:, :2] = (rows - 1) // 2, (columns - 1) // 2
        if self.mirror:
            result[:, 2] = below(self.seed, numbers, _MIRROR, 2)
        return result
