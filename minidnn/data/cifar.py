"""CIFAR-10 and CIFAR-100, as their authors distribute them: the binary files or the pickled ones for Python.

Pickles may run code, so these are read by an unpickler that makes NumPy's arrays alone.
"""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from minidnn.data.dataset import Arrays, DataError, Source

SHAPE = (3, 32, 32)
_VALUES = 3 * 32 * 32
_PARTS = tuple(f"data_batch_{i}" for i in range(1, 6))
_MADE = {"_reconstruct", "ndarray", "dtype", "encode"}  # what pickled arrays are made of
_FROM = {"numpy", "numpy.core.multiarray", "numpy._core.multiarray", "_codecs"}


@dataclass(frozen=True)
class _Cifar(Source):
    splits = True
    files: ClassVar[dict[str, tuple[str, ...]]]  # of each split, without .bin
    labels: ClassVar[int]  # bytes of labels before an image in a binary file, of which the last one counts
    key: ClassVar[bytes]  # of the labels in a pickled file
    names: ClassVar[tuple[str, bytes]]  # the files with the classes' names: binary, and pickled with its key

    folder: str

    def sample_shape(self):
        return SHAPE

    def sample_type(self):
        return "uint8"

    def resident(self):
        paths = [os.path.join(self.folder, name + end) for name in self.files[self.split] for end in ("", ".bin")]
        return sum(os.path.getsize(path) for path in paths if os.path.isfile(path))

    def open(self):
        parts = [self._part(name) for name in self.files[self.split]]
        images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return Arrays.of(f"{self.folder} ({self.split})", images, labels)

    def _part(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        path = os.path.join(self.folder, name)
        try:
            if os.path.isfile(path + ".bin"):
                return _binary(path + ".bin", self.labels)
            if os.path.isfile(path):
                return _pickled(path, self.key)
        except OSError as error:
            raise DataError(f"{path}: {error.strerror or error}") from error
        raise DataError(f"{self.folder}: there is no {name}.bin, nor {name}")


@dataclass(frozen=True)
class Cifar10(_Cifar):
    """`cifar10:FOLDER`: (3, 32, 32) in red, green, blue."""

    form = "cifar10:FOLDER"
    files: ClassVar = {"train": _PARTS, "test": ("test_batch",)}
    labels, key = 1, b"labels"

    def class_names(self):
        return ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class Cifar100(_Cifar):
    """`cifar100:FOLDER`: the same with 100 classes, the fine ones."""

    form = "cifar100:FOLDER"
    files: ClassVar = {"train": ("train",), "test": ("test",)}
    labels, key = 2, b"fine_labels"


def _binary(path: str, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 (n, 3, 32, 32) and labels uint8 (n,) of a binary file."""
    values = np.fromfile(path, np.uint8)
    if not len(values) or len(values) % (labels + _VALUES):
        raise DataError(f"{path}: torn: {len(values)} bytes are not images of {labels + _VALUES} bytes")
    rows = values.reshape(-1, labels + _VALUES)
    return rows[:, labels:].reshape(-1, *SHAPE), rows[:, labels - 1]


class _Arrays(pickle.Unpickler):
    def find_class(self, module, name):
        if module in _FROM and name in _MADE:
            return super().find_class(module, name)
        raise DataError(f"it would make {module}.{name}, which no file of CIFAR holds")


def _pickled(path: str, key: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The same of a pickled file, whose labels have this key."""
    with open(path, "rb") as file:
        try:
            result = _Arrays(file, encoding="bytes").load()
            images, labels = np.asarray(result[b"data"]), np.asarray(result[key])
        except MemoryError:
            raise
        except Exception as error:  # whatever a broken pickle raises
            raise DataError(f"{path}: not a file of CIFAR for Python: {error or type(error).__name__}") from error
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != _VALUES:
        raise DataError(f"{path}: its data are {images.dtype} of shape {images.shape}; expected uint8 (n, {_VALUES})")
    return images.reshape(-1, *SHAPE), labels
