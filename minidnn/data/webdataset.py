"""WebDataset: tar files in which a sample's image and its label have one name, 0001.jpg and 0001.cls.

Opening reads the headers and the labels. Images are read when they are wanted, from their places in the files.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minidnn.data.dataset import DataError
from minidnn.data.decoding import LARGEST, SUFFIXES
from minidnn.data.encoded import Images, Names, Pictures
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
        return _Members(self.path, [_opened(path) for path in files], self.channels())

    def _files(self) -> list[str]:
        if os.path.isfile(self.path):
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
    label, or a label that is none."""
    images: dict[str, tuple[str, int, int]] = {}
    labels: dict[str, tarfile.TarInfo] = {}
    try:
        with open(file.name(), "rb") as raw, tarfile.open(fileobj=raw, mode="r:") as archive:
            for member in archive:
                stem, ends = _parts(member.name)
                if member.isfile() and ends == LABEL:
                    labels[stem] = member
                elif member.isfile() and ends.endswith(SUFFIXES):
                    if stem in images:
                        raise DataError(f"{file.path}: {member.name} and {images[stem][0]} are images of one sample")
                    images[stem] = member.name, member.offset_data, member.size
    except (tarfile.TarError, EOFError) as error:
        raise DataError(
            f"{file.path}: not a plain tar file ({error}); one that is packed has to be unpacked"
        ) from error
    for stem, image in images.items():
        if stem not in labels:
            raise DataError(f"{file.path}: {image[0]} has no label: there is no {stem}{LABEL}")
        result = labels[stem]
        text = file.read(result.offset_data, min(result.size, 2 * _DIGITS)).strip()
        if not text.isdigit() or int(text) >= 2**31:
            shown = text.decode("ascii", "backslashreplace")
            raise DataError(f"{file.path}: {result.name}: expected a label, a number of at least 0; got {shown!r}")
        yield *image, int(text)


def _parts(name: str) -> tuple[str, str]:
    """A member's sample and its suffixes in lower case, which begin at the first dot of its last part."""
    folder, _, last = name.rpartition("/")
    stem, dot, ends = last.partition(".")
    return (f"{folder}/{stem}" if folder else stem), (dot + ends).lower()
