"""Samples without labels that a net is to judge: images, folders of images, or files of arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from minidnn.data.dataset import Arrays, DataError, Dataset
from minidnn.data.decoding import SUFFIXES
from minidnn.data.encoded import Images, content
from minidnn.data.files import raw_samples
from minidnn.data.folder import images_in


def given(paths: Sequence[str], channels: int) -> Dataset:
    """The dataset of these paths, in their order; its labels mean nothing.

    paths:    images, and folders, of which all images count, in the order of their names; or one file of arrays
    channels: 3: images are in colour; 1: in grey

    Raises DataError if there is no image, or if a path cannot be read."""
    if len(paths) == 1 and not os.path.isdir(paths[0]) and not _is_image(paths[0]):
        found = raw_samples(paths[0])
        return Arrays(paths[0], found, np.zeros(len(found), np.int32))
    names: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            inside = [os.path.join(path, name) for name in images_in(path)]
            if not inside:
                raise DataError(f"{path}: there are no images: none ends in {', '.join(SUFFIXES)}")
            names += inside
        elif _is_image(path):
            names.append(path)
        else:
            what = "is neither a folder nor an image by its name, and a file of arrays must be the only one"
            raise DataError(f"{path}: {what}; images end in {', '.join(SUFFIXES)}")
    return _Given(names, channels)


def _is_image(path: str) -> bool:
    return path.lower().endswith(SUFFIXES)


class _Given(Images):
    def __init__(self, names: Sequence[str], channels: int) -> None:
        super().__init__("the images", np.zeros(len(names), np.int32), channels)
        self._names = names

    def place(self, index: int) -> str:
        return self._names[index]

    def read(self, index: int) -> tuple[bytes, int]:
        return content(self._names[index]), 0
