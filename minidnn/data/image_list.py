"""Caffe's lists of images: a text file with a path and a label on each line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from minidnn.data.dataset import DataError
from minidnn.data.decoding import pixels
from minidnn.data.encoded import Images, Names, Pictures, content, reason
from minidnn.files import regular

_HIGHEST = np.iinfo(np.int32).max
_DIGITS, _SHOWN = 100, 200  # of a label, at most; characters of a line in an error, at most


@dataclass(frozen=True)
class ImageList(Pictures):
    """`list:FILE`: lines "PATH LABEL", with paths relative to the working folder; or to `root`, as of an ImageData
    layer. A path may have spaces. Empty lines do not count."""

    form = "list:FILE"

    path: str
    root: str = field(default="", kw_only=True)

    def sample_shape(self):
        line = next(_lines(self.path), None)
        if line is None:
            raise DataError(f"{self.path}: there are no lines; expected a path and a label on each")
        if not self.alike:
            return super().sample_shape()
        number, name, _ = line
        try:
            return pixels(content(self.root + name), self.channels(), self.upright).shape
        except (DataError, OSError) as error:
            raise DataError(f"{self.path}:{number}: {self.root}{name}: {reason(error)}") from error

    def open(self):
        lines, labels = [], []

        def names() -> Iterator[bytes]:
            for line, name, label in _lines(self.path):
                lines.append(line)
                labels.append(label)
                yield os.fsencode(name)

        result = _Listed(self.path, self.root, Names(names()), np.array(lines, np.int32), np.array(labels, np.int32),
                        self.channels())  # fmt: skip
        if not labels:
            raise DataError(f"{self.path}: there are no lines; expected a path and a label on each")
        if not os.path.isfile(result.path(0)):
            raise DataError(
                f"{result.place(0)}: no such file; paths are relative to {self.root or 'the working folder'}"
            )
        return result.of(self)


class _Listed(Images):
    def __init__(
        self, list_: str, root: str, names: Names, lines: np.ndarray, labels: np.ndarray, channels: int
    ) -> None:
        super().__init__(list_, labels, channels)
        self._root, self._names, self._lines = root, names, lines

    @property
    def nbytes(self) -> int:
        return self._names.nbytes + self._lines.nbytes + self.labels.nbytes

    def path(self, index: int) -> str:
        """The image's file: the root and the name behind it, joined as Caffe does."""
        return self._root + os.fsdecode(self._names[index])

    def place(self, index: int) -> str:
        return f"{self.name}:{self._lines[index]}: {self.path(index)}"

    def read(self, index: int) -> tuple[bytes, int]:
        return content(self.path(index)), int(self.labels[index])


def first(path: str) -> str:
    """The path in the first line of a list; empty if there is none. Raises DataError as for a list."""
    return next((name for _, name, _ in _lines(path)), "")


def _lines(path: str) -> Iterator[tuple[int, str, int]]:
    """(number of the line, path, label) of each line. Raises DataError for a line without both."""
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", opener=regular.handle) as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                name, _, label = line.strip().rpartition(" ")
                if not name or not label.isdecimal() or len(label) > _DIGITS or int(label) > _HIGHEST:
                    what = "expected a path, a space and a label of at least 0, such as 'cats/1.jpg 0'"
                    raise DataError(f"{path}:{number}: {what}; got {line.strip()[:_SHOWN]!r}")
                yield number, name.rstrip(), int(label)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
