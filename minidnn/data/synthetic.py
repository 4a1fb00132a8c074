"""Images that need no file: each class is a smooth pattern, each image its class's pattern plus noise.

Nothing is stored: an image is a function of (seed, index), so ImageNet-sized data costs no memory.
"""

from __future__ import annotations

import numpy as np

from minidnn.data.random import below

_CELLS = 4  # a pattern has so many cells along each axis


class Synthetic:
    def __init__(self, shape: tuple[int, ...], classes: int, count: int, seed: int = 0, first: int = 0):
        """`first` is the index of the first image: a test set continues where its training set ends."""
        self.name = f"synthetic {'×'.join(map(str, shape))} in {classes} classes"
        self.shape, self.classes = tuple(shape), classes
        self._count, self._seed, self._first = count, seed, first
        cells = (shape[0], _CELLS, _CELLS) if len(shape) == 3 else shape
        rng = np.random.Generator(np.random.Philox(key=seed))
        self._patterns = rng.standard_normal((classes, *cells)).astype(np.float32)

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
        """A pattern's cells repeated to the size of an image."""
        if len(self.shape) != 3:
            return pattern
        rows, columns = (np.arange(size) * _CELLS // size for size in self.shape[1:])
        return pattern[:, rows[:, None], columns]
