"""WebDataset: tar files in which a sample's image and its label have one name, 0001.jpg and 0001.cls.

Opening reads the headers (data/tar.py) and the labels. Images are read when they are wanted, from their places in the
files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minidnn.data.dataset import DataError
from minidnn.data.decoding import LARGEST, SUFFIXES
from minidnn.data.encoded import Images, Names, Pictures
from minidnn.data.tar import Member, members
from minidnn.errors import few
from minidnn.files.parts import Parts

LABEL = ".cls"
_DIGITS = 10  # of a label, at most


@dataclass(frozen=True)
class WebDataset(Pictures):
    """`tar:PATH`, or a PATH that ends in .tar: a tar file or a folder of tar files; with folders train and val (or
    test) in it for the phases."""

    form, suffix, splits = "tar:PATH", ".tar", True

    path: str

    def sample_shape(self):
        self._files()  # raises if there are none
        return super().sample_shape()

    def open(self):
        files = self._files()
        return _Members(self.path, [_opened(path) for path in files], self.channels()).of(self)

    def _files(self) -> list[str]:
        if os.path.exists(self.path) and not os.path.isdir(self.path):
            return [self.path]
        folder = Path(self.path)
        for name in ("train",) if self.split == "train" else ("val", "test"):
            if (folder / name).is_dir() and (folder / "train").is_dir():
                folder = folder / name
        result = sorted(str(path) for path in folder.glob("*.tar"))
        if not result:
            raise DataError(f"{folder}: there is no tar file there" if folder.is_dir() else f"{folder}: no such file")
        return result


class _Members(Images):
    """The samples of several tar files, in the order of their images there."""

    def __init__(self, name: str, files: list[Parts], channels: int) -> None:
        spans: list[tuple[int, int, int]] = []  # (file, first byte, number of bytes) of each image
        labels: list[int] = []

        def names() -> Iterator[bytes]:
            for number, file in enumerate(files):
                for sample, at, size, label in _samples(file):
                    spans.append((number, at, size))
                    labels.append(label)
                    yield os.fsencode(sample)

        self._names = Names(names())
        if not labels:
            raise DataError(f"{name}: holds no images: none ends in {', '.join(SUFFIXES)}")
        super().__init__(name, np.array(labels, np.int32), channels)
        self._files, self._spans = files, np.array(spans, np.int64)

    @property
    def nbytes(self) -> int:
        return self._names.nbytes + self._spans.nbytes + self.labels.nbytes

    def place(self, index: int) -> str:
        return f"{self._files[self._spans[index, 0]].path}: {os.fsdecode(self._names[index])}"

    def read(self, index: int) -> tuple[bytes, int]:
        file, at, size = self._spans[index].tolist()
        if size > LARGEST:
            raise DataError(f"{size} bytes, which no image has")
        return self._files[file].read(at, size), int(self.labels[index])


def _opened(path: str) -> Parts:
    try:
        return Parts(path, DataError)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error


def _samples(file: Parts) -> Iterator[tuple[str, int, int, int]]:
    """(name, first byte, number of bytes, label) of each image of a tar file. Raises DataError for an image without a
    label, a label without an image, a label that is none, or an archive that is not whole."""
    images: dict[str, Member] = {}
    labels: dict[str, Member] = {}
    for member in members(file):
        stem, ends = _parts(member.name)
        if member.kind == "folder" or not (ends == LABEL or ends.endswith(SUFFIXES)):
            continue
        if member.kind != "file":
            what = "pack the file itself, as tar does with --dereference and --hard-dereference"
            raise DataError(f"{file.path}: {member.name} is a {member.kind}, not a file: {what}")
        mine, what = (labels, "labels") if ends == LABEL else (images, "images")
        if stem in mine:
            raise DataError(f"{file.path}: {member.name} and {mine[stem].name} are {what} of one sample")
        mine[stem] = member
    for stem, image in images.items():
        if stem not in labels:
            raise DataError(f"{file.path}: {image.name} has no label: there is no {stem}{LABEL}")
        yield image.name, image.at, image.size, _label(file, labels.pop(stem))
    if labels:
        names = few([label.name for label in labels.values()])
        raise DataError(f"{file.path}: {names}: no image has this name: none ends in {', '.join(SUFFIXES)}")


def _label(file: Parts, member: Member) -> int:
    if member.size > 2 * _DIGITS:
        raise DataError(f"{file.path}: {member.name}: {member.size} bytes; a label has {2 * _DIGITS} at most")
    text = file.read(member.at, member.size).strip()
    if not text.isdigit() or int(text) >= 2**31:
        shown = text.decode("ascii", "backslashreplace")
        raise DataError(f"{file.path}: {member.name}: expected a label, a number of at least 0; got {shown!r}")
    return int(text)


def _parts(name: str) -> tuple[str, str]:
    """A member's sample and its suffixes in lower case, which begin at the first dot of its last part."""
    folder, _, last = name.rpartition("/")
    stem, dot, ends = last.partition(".")
    return (f"{folder}/{stem}" if folder else stem), (dot + ends).lower()
