"""CIFAR-10 and CIFAR-100, as their authors distribute them: the binary files or the pickled ones for Python.

A pickle may run code, so the pickled ones are read without Python's unpickler (pickled.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from minidnn.data import pickled
from minidnn.data.dataset import Arrays, DataError, Source
from minidnn.files import regular

SHAPE = (3, 32, 32)
_VALUES = 3 * 32 * 32
_PARTS = tuple(f"data_batch_{i}" for i in range(1, 6))


@dataclass(frozen=True)
class _Cifar(Source):
    splits = True
    files: ClassVar[dict[str, tuple[str, ...]]]  # of each split, without .bin
    labels: ClassVar[int]  # bytes of labels before an image in a binary file, of which the last one counts
    classes: ClassVar[int]
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
                return self._checked(path + ".bin", *_binary(path + ".bin", self.labels))
            if os.path.isfile(path):
                return self._checked(path, *_pickled(path, self.key))
        except OSError as error:
            raise DataError(f"{path}: {error.strerror or error}") from error
        raise DataError(f"{self.folder}: there is no {name}.bin, nor {name}")

    def _checked(self, path: str, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The images and labels. Raises DataError for a label that is no class."""
        if len(wrong := np.flatnonzero(labels >= self.classes)):
            first = wrong[0]
            raise DataError(f"{path}: label {labels[first]} of image {first} is none of the {self.classes} classes")
        return images, labels


@dataclass(frozen=True)
class Cifar10(_Cifar):
    """`cifar10:FOLDER`: (3, 32, 32) in red, green, blue."""

    form = "cifar10:FOLDER"
    files: ClassVar = {"train": _PARTS, "test": ("test_batch",)}
    labels, classes, key = 1, 10, b"labels"

    def class_names(self):
        return ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class Cifar100(_Cifar):
    """`cifar100:FOLDER`: the same with 100 classes, the fine ones."""

    form = "cifar100:FOLDER"
    files: ClassVar = {"train": ("train",), "test": ("test",)}
    labels, classes, key = 2, 100, b"fine_labels"


def _binary(path: str, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 (n, 3, 32, 32) and labels uint8 (n,) of a binary file."""
    values = np.frombuffer(regular.content(path), np.uint8)
    if not len(values) or len(values) % (labels + _VALUES):
        raise DataError(f"{path}: truncated: {len(values)} bytes are not images of {labels + _VALUES} bytes")
    rows = values.reshape(-1, labels + _VALUES)
    return rows[:, labels:].reshape(-1, *SHAPE), rows[:, labels - 1]


def _pickled(path: str, key: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The same of a pickled file, whose labels have this key."""
    try:
        result = pickled.load(regular.content(path))
    except pickled.InvalidPickle as error:
        raise DataError(f"{path}: not a file of CIFAR for Python: {error}") from error
    images, labels = (_entry(path, result, name) for name in (b"data", key))
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != _VALUES:
        raise DataError(f"{path}: its data are {images.dtype} of shape {images.shape}; expected uint8 (n, {_VALUES})")
    if labels.shape != images.shape[:1]:
        raise DataError(f"{path}: {len(images)} images, but labels of shape {labels.shape}")
    return images.reshape(-1, *SHAPE), labels


def _entry(path: str, values: Any, name: bytes) -> np.ndarray:
    """The array of this name in a pickled file."""
    entries = values if isinstance(values, dict) else {}
    result = pickled.array(entries.get(name, entries.get(name.decode())))
    if result is None:
        raise DataError(f"{path}: not a file of CIFAR for Python: it has no array {name.decode()}")
    return result
