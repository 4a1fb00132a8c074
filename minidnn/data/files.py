"""Image files without labels, by their paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import numpy as np

from minidnn.data.dataset import DataError
from minidnn.data.decoding import SUFFIXES
from minidnn.data.encoded import Images, content
from minidnn.data.folder import images_in


class Files(Images):
    """A dataset of image files, each labelled 0."""

    def __init__(self, paths: list[str], channels: int) -> None:
        """channels: 3, or 1 for grey"""
        super().__init__("images", np.zeros(len(paths), np.int32), channels)
        self.paths = paths

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.paths)) + self.labels.nbytes

    def place(self, index: int) -> str:
        return self.paths[index]

    def read(self, index: int) -> tuple[bytes, int]:
        return content(self.paths[index]), 0


def expanded(paths: Iterable[str]) -> Iterator[str]:
    """These paths, with the images in a folder, and in those within it, in its place. Raises DataError for a folder
    without any."""
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        names = list(images_in(path))
        if not names:
            raise DataError(f"{path}: there are no images: none ends in {', '.join(SUFFIXES)}")
        yield from (os.path.join(path, name) for name in names)
