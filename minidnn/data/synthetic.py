"""Made-up images: each class has a coarse pattern, and each image is the pattern of its class plus noise.

An image is a function of (seed, index) and is never stored, so data of ImageNet's size take no memory.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from minidnn.data.dataset import DataError, Source
from minidnn.data.random import below

_CELLS = 4  # cells of a pattern along height and along width
_DEFAULTS = {"classes": 10, "count": 1024, "seed": 1}
_MOST = 2**40


@dataclass(frozen=True)
class Patterns(Source):
    """`synthetic:CxHxW`, with classes=, count= and seed= after further colons."""

    form, made_up = "synthetic:3x32x32", True

    shape: tuple[int, ...]
    classes: int
    count: int
    seed: int

    @classmethod
    def parse(cls, text, split):
        size, *settings = text.split(":")
        if not re.fullmatch(r"\d+(x\d+x\d+)?", size) or not math.prod(shape := tuple(map(int, size.split("x")))):
            raise DataError(f"{size!r} is not a sample's shape; expected C x H x W as 3x32x32")
        values = dict(_DEFAULTS)
        for setting in settings:
            name, _, value = setting.partition("=")
            if name not in values or not value.isdecimal() or int(value) < 1:
                raise DataError(f"{setting!r} is not one of {', '.join(values)} = a number")
            values[name] = int(value)
        if math.prod(shape) > _MOST or any(value > _MOST for value in values.values()):
            raise DataError("no number in it, nor a sample's size, may be above 2^40")
        return cls(split, shape, **values)

    def sample_shape(self):
        return self.shape

    def open(self):
        first = _MOST if self.split == "test" else 0  # so no test image has the index of a training image
        return Synthetic(self.shape, self.classes, self.count, self.seed, first)


class Synthetic:
    """A dataset of `count` made-up images of this shape, float32, with labels below `classes`."""

    def __init__(self, shape: tuple[int, ...], classes: int, count: int, seed: int = 0, first: int = 0):
        """`first`: the index of the first image; test and training images have different indices."""
        self.name = f"synthetic {'×'.join(map(str, shape))} in {classes} classes"
        self.shape, self.classes = tuple(shape), classes
        self._count, self._seed, self._first = count, seed, first
        cells = (shape[0], _CELLS, _CELLS) if len(shape) == 3 else shape
        rng = np.random.Generator(np.random.Philox(key=seed))
        self._patterns = rng.standard_normal((classes, *cells)).astype(np.float32)

    def highest(self, ignored: int | None = None) -> int:
        return self.classes - 1 if ignored != self.classes - 1 else self.classes - 2

    def __len__(self) -> int:
        return self._count

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        indices = np.asarray(indices) + self._first
        labels = below(self._seed, indices, 0, self.classes).astype(np.int32)
        images = np.empty((len(indices), *self.shape), np.float32)
        for image, index, label in zip(images, indices, labels, strict=True):
            noise = np.random.Generator(np.random.Philox(key=np.array([self._seed, index], np.uint64)))
            noise.random(out=image, dtype=np.float32)
            image -= 0.5
            image += self._spread(self._patterns[label])
        return images, labels

    def _spread(self, pattern: np.ndarray) -> np.ndarray:
        """A pattern enlarged to the size of an image, by repetition of its cells."""
        if len(self.shape) != 3:
            return pattern
        rows, columns = (np.arange(size) * _CELLS // size for size in self.shape[1:])
        return pattern[:, rows[:, None], columns]
