"""scikit-learn's digits: 1797 real handwritten 8×8 digits. They come with the library, so nothing is downloaded. Their
file is read as it lies there: importing the library takes longer than training on them for a while.

Every fifth image, from the first on, is a test image: 360 for testing, 1437 for training. Raw values are 0..16, as in
the library; `transform_param: {scale: 0.0625}` makes them 0..1.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from minidnn.data.dataset import Arrays, DataError, Source

SHAPE = (1, 8, 8)
FILE = Path("datasets", "data", "digits.csv.gz")  # in scikit-learn's folder: 64 pixels and the digit, a row for each


class Digits(Source):
    """`digits`: scikit-learn's digits, (1, 8, 8)."""

    form, splits = "digits", True

    @classmethod
    def parse(cls, text, split):
        return None if text else cls(split)

    def sample_shape(self):
        return SHAPE

    def resident(self):
        return 4 * 2**20  # the rows, and the text that they are parsed from

    def open(self):
        return read(self.split)


def read(split: str) -> Arrays:
    """The digits of one split, "train" or "test". Raises DataError if scikit-learn is not installed, or has no such
    file."""
    spec = find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise DataError("the digits come with scikit-learn, which is not installed here: pip install 'minidnn[data]'")
    try:
        rows = _rows(Path(spec.submodule_search_locations[0]) / FILE)
    except (OSError, ValueError) as error:
        raise DataError(f"the digits of scikit-learn cannot be read: {error}") from error
    test = np.arange(len(rows)) % 5 == 0
    chosen = rows[test if split == "test" else ~test]
    images = chosen[:, :-1].reshape(-1, *SHAPE[1:]).astype(np.float32)
    return Arrays.of(f"digits ({split})", images, chosen[:, -1].astype(np.int64))


@cache
def _rows(path: Path) -> np.ndarray:
    """The file's rows, uint8 (1797, 65): parsed once, since a training and its tests take different ones of them."""
    return np.loadtxt(path, delimiter=",", dtype=np.uint8)
