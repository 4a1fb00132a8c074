"""scikit-learn's digits: 1797 real handwritten 8×8 digits. They come with the library, so nothing is downloaded.

Every fifth image, from the first on, is a test image: 360 for testing, 1437 for training. Raw values are 0..16, as in
the library; `transform_param: {scale: 0.0625}` makes them 0..1.
"""

from __future__ import annotations

import numpy as np

from minidnn.data.dataset import Arrays, DataError, Source

SHAPE = (1, 8, 8)


class Digits(Source):
    """`digits`: scikit-learn's digits, (1, 8, 8)."""

    form, splits = "digits", True

    @classmethod
    def parse(cls, text, split):
        return None if text else cls(split)

    def sample_shape(self):
        return SHAPE

    def resident(self):
        return 82 * 2**20  # scikit-learn itself; the digits are 0.5 MB

    def open(self):
        return read(self.split)


def read(split: str) -> Arrays:
    """The digits of one split, "train" or "test". Raises DataError if scikit-learn is not installed."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError(
            "the digits come with scikit-learn, which is not installed here: pip install 'minidnn[data]'"
        ) from error
    digits = load_digits()
    test = np.arange(len(digits.target)) % 5 == 0
    chosen = test if split == "test" else ~test
    return Arrays.of(f"digits ({split})", digits.images[chosen].astype(np.float32), digits.target[chosen])
