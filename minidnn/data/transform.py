"""Caffe's transformation of samples: crop, subtract the mean, multiply by the scale, mirror; in this order.

The crop is random in TRAIN and central in TEST. `mirror: true` mirrors a random half of the samples, in TEST too, as
in Caffe. The random numbers are a function of (seed, the sample's number since training began). What Caffe lacks comes
before: sizes, rotation, colours (data/augment.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from minidnn.data.augment import COLUMN, ROW, Augment
from minidnn.data.dataset import DataError
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

    def shape(self, sample: tuple[int, ...], name: str = "data") -> tuple[int, ...]:
        """The shape of a transformed sample, from that of the dataset's. Raises DataError if the transform does not fit
        it."""
        sample = self.augment.shape(sample, name)
        if len(sample) != 3:
            if self.crop or self.mirror or self.image is not None:
                raise DataError(f"{name}: crop_size, mirror and mean_file need images (C, H, W), a sample is {sample}")
            return sample
        channels, height, width = sample
        if self.image is not None and self.image.shape != sample:
            raise DataError(f"{name}: mean_file holds a mean of shape {self.image.shape}, a sample is {sample}")
        if len(self.mean) not in (0, 1, channels):
            raise DataError(f"{name}: {len(self.mean)} mean_values for {channels} channels; give 1 or all")
        if self.crop > min(height, width):
            raise DataError(f"{name}: crop_size {self.crop} exceeds the images' {height}×{width}")
        return (channels, self.crop, self.crop) if self.crop else sample

    def __call__(self, images: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The transformed samples, a new float32 array, of raw ones as `augment` leaves them. `numbers`: each sample's
        number since training began."""
        windows = self.windows(images.shape[1:], numbers)
        whole = images.shape
        images = self._cropped(images, windows) if self.crop else images
        out = images.astype(np.float32, order="C")  # always a copy, so that the dataset's values do not change
        if self.mean:
            out -= np.array(self.mean, np.float32).reshape(-1, *(1,) * (out.ndim - 2))
        if self.image is not None:
            means = np.broadcast_to(self.image, whole)
            out -= self._cropped(means, windows) if self.crop else means
        if self.scale != 1.0:
            out *= np.float32(self.scale)
        if self.mirror:
            flipped = windows[:, 2] == 1
            out[flipped] = out[flipped][..., ::-1]
        return out

    def windows(self, sample: tuple[int, ...], numbers: np.ndarray) -> np.ndarray:
        """The random part of the transform, for samples of this raw shape: int32 (n, 3), for each sample the row and
        the column where its crop begins, and 1 if it is mirrored, else 0."""
        found = np.zeros((len(numbers), 3), np.int32)
        if self.crop:
            rows, columns = (size - self.crop + 1 for size in sample[1:])
            if self.train:
                found[:, 0] = below(self.seed, numbers, ROW, rows)
                found[:, 1] = below(self.seed, numbers, COLUMN, columns)
            else:
                found[:, :2] = (rows - 1) // 2, (columns - 1) // 2
        if self.mirror:
            found[:, 2] = below(self.seed, numbers, _MIRROR, 2)
        return found

    def _cropped(self, images: np.ndarray, windows: np.ndarray) -> np.ndarray:
        out = np.empty((*images.shape[:2], self.crop, self.crop), images.dtype)
        for k, (r, c, _) in enumerate(windows):
            out[k] = images[k, :, r : r + self.crop, c : c + self.crop]
        return out
