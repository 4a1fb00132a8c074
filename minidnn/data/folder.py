"""A folder of images, with a folder for each class."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from minidnn.data.dataset import DataError
from minidnn.data.decoding import SUFFIXES
from minidnn.data.encoded import Images, Names, Pictures, content
from minidnn.errors import few

_TESTS = ("val", "test")  # the names that the folder of test images may have


@dataclass(frozen=True)
class Folder(Pictures):
    """`folder:PATH`: PATH/train/CLASS/... and PATH/val/CLASS/..., or PATH/CLASS/... for both phases.

    Labels count the classes of training in the order of their names. Images may lie in folders within their class's.
    Files with other suffixes than an image's are passed over, and so are names that begin with a dot."""

    form, splits = "folder:PATH", True

    path: str

    def sample_shape(self):
        self._roots()  # raises if there is none
        return super().sample_shape()

    def class_names(self):
        return tuple(_folders(self._roots()[0]))

    def open(self):
        of_classes, root = self._roots()
        known = {name: label for label, name in enumerate(_folders(of_classes))}
        here = _folders(root)
        if strange := [name for name in here if name not in known]:
            raise DataError(f"{root}: {few(strange)}: no such class in {of_classes}, which has {few(list(known))}")
        labels: list[int] = []

        def names() -> Iterator[bytes]:
            for name in here:
                count = len(labels)
                for path in images_in(root, name):
                    labels.append(known[name])
                    yield os.fsencode(path)
                if len(labels) == count:
                    raise DataError(
                        f"{os.path.join(root, name)}: there are no images: none ends in {', '.join(SUFFIXES)}"
                    )

        result = Names(names())
        return _Files(root, result, np.array(labels, np.int32), self.channels()).of(self)

    def _roots(self) -> tuple[str, str]:
        """(the folder whose folders are the classes, that of this split). Raises DataError if there is none."""
        train = os.path.join(self.path, "train")
        if not os.path.isdir(train) or not _folders(train):
            if not _folders(self.path):
                raise DataError(f"{self.path}: there are no folders with images there, one for each class")
            return self.path, self.path
        if self.split == "train":
            return train, train
        for name in _TESTS:
            if os.path.isdir(os.path.join(self.path, name)):
                return train, os.path.join(self.path, name)
        raise DataError(f"{self.path}: has train, but neither {' nor '.join(_TESTS)}")


class _Files(Images):
    def __init__(self, root: str, names: Names, labels: np.ndarray, channels: int) -> None:
        super().__init__(root, labels, channels)
        self._root, self._names = root, names

    @property
    def nbytes(self) -> int:
        return self._names.nbytes + self.labels.nbytes

    def place(self, index: int) -> str:
        return os.path.join(self._root, os.fsdecode(self._names[index]))

    def read(self, index: int) -> tuple[bytes, int]:
        return content(self.place(index)), int(self.labels[index])


def _folders(path: str) -> list[str]:
    """The names of the folders in it, sorted. Raises DataError if there is no such folder."""
    try:
        with os.scandir(path) as entries:
            return sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir())
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error


def images_in(root: str, name: str = "") -> Iterator[str]:
    """The images in `root`, or in its folder `name`: relative to `root`, in the order of their names. Raises DataError
    if a folder cannot be read."""

    def fail(error: OSError) -> None:
        raise DataError(f"{error.filename}: {error.strerror or error}") from error

    for folder, folders, files in os.walk(os.path.join(root, name), onerror=fail):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for file in sorted(files):
            if file.lower().endswith(SUFFIXES) and not file.startswith("."):
                yield os.path.relpath(os.path.join(folder, file), root)
