"""1797 real handwritten 8×8 digits, which come with the package: a first training needs no other one, and downloads
nothing.

They are the test set of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, 1998; NOTICE has the
licence), in the order in which scikit-learn has them. Every fifth image, from the first on, is a test image: 360 for
testing, 1437 for training. Raw values are 0..16; `transform_param: {scale: 0.0625}` makes them 0..1.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from minidnn.data.dataset import Arrays, Source

FILE = Path(__file__).with_suffix(".npz")  # images, uint8 (1797, 8, 8), and labels, uint8 (1797,)
SHAPE = (1, 8, 8)


class Digits(Source):
    """`digits`: handwritten digits, (1, 8, 8)."""

    form, splits = "digits", True

    @classmethod
    def parse(cls, text, split):
        return None if text else cls(split)

    def sample_shape(self):
        return SHAPE

    def resident(self):
        return 2**20  # what the file has, and the images of both splits as float32

    def open(self):
        return read(self.split)


def read(split: str) -> Arrays:
    """The digits of one split, "train" or "test"."""
    images, labels = _all()
    chosen = (np.arange(len(labels)) % 5 == 0) == (split == "test")
    return Arrays.of(f"digits ({split})", images[chosen].astype(np.float32), labels[chosen])


@cache
def _all() -> tuple[np.ndarray, np.ndarray]:
    """All images and labels: read once, since a training and its tests take different ones of them."""
    with np.load(FILE) as file:
        return file["images"], file["labels"]
