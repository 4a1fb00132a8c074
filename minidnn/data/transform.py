"""Caffe's transformation of samples: crop, subtract the mean, multiply by the scale, mirror; in this order.

The crop is random in TRAIN and central in TEST. `mirror: true` mirrors a random half of the samples, in TEST too, as
in Caffe. The random numbers are a function of (seed, the sample's number since training began).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minidnn.data.dataset import DataError
from minidnn.data.random import below

_ROW, _COLUMN, _MIRROR = 1, 2, 3  # lanes of the random numbers (data/random.py)


@dataclass(frozen=True)
class Transform:
    """Raw samples -> float32 samples as the net reads them. The defaults change only the type."""

    crop: int = 0  # height and width of the crop; 0: none
    mean: tuple[float, ...] = ()  # none, one value, or one per channel
    scale: float = 1.0
    mirror: bool = False
    train: bool = True
    seed: int = 0

    def shape(self, sample: tuple[int, ...], name: str = "data") -> tuple[int, ...]:
        """The shape of a transformed sample, from its raw shape. Raises DataError if the transform does not fit it."""
        if len(sample) != 3:
            if self.crop or self.mirror:
                raise DataError(f"{name}: crop_size and mirror need images (C, H, W), a sample is {sample}")
            return sample
        channels, height, width = sample
        if len(self.mean) not in (0, 1, channels):
            raise DataError(f"{name}: {len(self.mean)} mean_values for {channels} channels; give 1 or all")
        if self.crop > min(height, width):
            raise DataError(f"{name}: crop_size {self.crop} exceeds the images' {height}×{width}")
        return (channels, self.crop, self.crop) if self.crop else sample

    def __call__(self, images: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The transformed samples, a new float32 array. `numbers`: each sample's number since training began."""
        images = self._cropped(images, numbers) if self.crop else images
        out = images.astype(np.float32, order="C")  # always a copy, so that the dataset's values do not change
        if self.mean:
            out -= np.array(self.mean, np.float32).reshape(-1, *(1,) * (out.ndim - 2))
        if self.scale != 1.0:
            out *= np.float32(self.scale)
        if self.mirror:
            flipped = below(self.seed, numbers, _MIRROR, 2) == 1
            out[flipped] = out[flipped][..., ::-1]
        return out

    def _cropped(self, images: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        room = [size - self.crop + 1 for size in images.shape[2:]]
        if self.train:
            rows = below(self.seed, numbers, _ROW, room[0])
            columns = below(self.seed, numbers, _COLUMN, room[1])
        else:
            rows, columns = (np.full(len(images), (r - 1) // 2) for r in room)
        out = np.empty((*images.shape[:2], self.crop, self.crop), images.dtype)
        for k, (r, c) in enumerate(zip(rows, columns, strict=True)):
            out[k] = images[k, :, r : r + self.crop, c : c + self.crop]
        return out
