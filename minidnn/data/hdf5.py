"""HDF5: datasets whose rows are samples, in one file or in those that a text names, as of Caffe's HDF5Data.

Rows are read where they lie, and none is kept. Files are opened anew in each process.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from minidnn.data.dataset import DataError, Source, label_shape, no_labels, numbers
from minidnn.data.hdf5_file import blamed, dataset, opened
from minidnn.data.npz import LABELS
from minidnn.errors import few
from minidnn.files import regular

IMAGES = ("data", "x", "images")
SUFFIXES = (".h5", ".hdf5")
_SHOWN = 8  # names of a file in a message, at most


@dataclass(frozen=True)
class Hdf5(Source):
    """`hdf5:PATH`, or a PATH that ends in .h5: a dataset `data` (or `x`, `images`) and a dataset `label` (or `y`,
    `labels`). PATH is a file, or a text with a file on each line."""

    form, suffix = "hdf5:PATH", ".h5"

    path: str

    def sample_shape(self):
        column = self._column(IMAGES)
        numbers(column.name, (len(column), *column.shape), column.dtype)
        return (1, *column.shape) if len(column.shape) == 2 else column.shape

    def label_shape(self):
        return label_shape((1, *self._column(("label", *LABELS)).shape))

    def sample_type(self):
        return "uint8" if self._column(IMAGES).dtype == np.uint8 else "float32"

    def open(self):
        return _Pairs(self.path, self._column(IMAGES), self._column(("label", *LABELS)), self.sample_shape(),
                      self.label_shape())  # fmt: skip

    def _column(self, names: Sequence[str]) -> Column:
        return Column(self.path, names)


@dataclass(frozen=True)
class Hdf5Column(Source):
    """One top of an HDF5Data layer: a dataset without labels."""

    form = "hdf5:PATH"

    path: str
    dataset: str
    tops: tuple[str, ...] = ()

    def sample_shape(self):
        column = self._column()
        column.check_rows(self.tops)
        return column.shape

    def open(self):
        return _Alone(self._column())

    def _column(self) -> Column:
        return Column(self.path, (self.dataset,))


class Column:
    """A dataset of this name, or of the first of these names that a file has, over all files: an array (n, ...)."""

    def __init__(self, path: str, either: Sequence[str]) -> None:
        """Raises DataError if there is none, if files differ in its shape, or if h5py is not installed."""
        self.path, self._files = path, files(path)
        self._either, self._process = either, os.getpid()
        self._open: dict[str, tuple[str, Any]] = {}
        rows = [self._rows(file) for file in self._files]
        for file, result in zip(self._files, rows, strict=True):
            if result.ndim < 1 or result.shape[1:] != rows[0].shape[1:] or result.dtype.kind not in "fiub":
                wanted = ", ".join(map(str, ("n", *rows[0].shape[1:])))
                what = f"{result.dtype} of shape {result.shape}; expected numbers of shape ({wanted})"
                raise DataError(f"{self._place(file)}: {what}")
        self.name = f"{path}: {self._opened(self._files[0])[0]}"
        self.shape, self.dtype = tuple(rows[0].shape[1:]), rows[0].dtype
        self._ends = list(accumulate(len(result) for result in rows))
        if not self._ends[-1]:
            raise DataError(f"{self.name}: there are no rows")

    def __len__(self) -> int:
        return self._ends[-1]

    def check_rows(self, others: Sequence[str]) -> None:
        """Raise DataError unless the datasets of these names have as many rows, in each of the files."""
        for file in self._files:
            mine, here = self._opened(file)
            for name in others:
                there = dataset(file, here.file, name)  # None: its own column refuses it
                if there is not None and there.shape and len(there) != len(here):
                    what = f"{mine} has {len(here)} rows, {name} has {len(there)}: a row of each is a sample"
                    raise DataError(f"{file}: {what}")

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """The rows at these indices, (n, ...). Raises DataError if they cannot be read, or hold what float32 cannot."""
        result = np.stack([self._row(int(i)) for i in indices])
        if result.dtype.kind == "f":
            with np.errstate(over="ignore", invalid="ignore"):
                finite = np.isfinite(result.astype(np.float32, copy=False).reshape(len(result), -1)).all(1)
            if not finite.all():
                row = indices[finite.argmin()]
                raise DataError(f"{self.name}: row {row} holds values that are not finite in float32")
        return result

    def _row(self, index: int) -> np.ndarray:
        k = bisect.bisect_right(self._ends, index)
        file = self._files[k]
        first = self._ends[k - 1] if k else 0
        with blamed(f"{self._place(file)}: row {index - first} cannot be read"):
            return self._rows(file)[index - first]

    def _place(self, file: str) -> str:
        return f"{file}: {self._opened(file)[0]}"

    def _rows(self, file: str) -> Any:
        return self._opened(file)[1]

    def _opened(self, file: str) -> tuple[str, Any]:
        """(its name, the dataset) in this file, opened anew in each process."""
        if self._process != os.getpid():
            self._process, self._open = os.getpid(), {}
        if file not in self._open:
            self._open[file] = self._first(file)
        return self._open[file]

    def _first(self, file: str) -> tuple[str, Any]:
        content = opened(file)
        try:
            for name in self._either:
                if (result := dataset(file, content, name)) is not None:
                    return name, result
            with blamed(file):
                has = few(list(content), _SHOWN) or "nothing"
            raise DataError(f"{file}: holds {has}; expected a dataset {' or '.join(self._either)}")
        except DataError:
            content.close()
            raise

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}


class _Alone:
    """A dataset of samples without labels; each is labelled 0."""

    def __init__(self, column: Column) -> None:
        self.name, self.shape, self._column = column.name, column.shape, column

    def __len__(self) -> int:
        return len(self._column)

    def highest(self, ignored: int | None = None) -> int:
        return -1

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._column.rows(indices), np.zeros(len(indices), np.int32)


class _Pairs:
    """A dataset of samples and labels."""

    def __init__(self, name: str, x: Column, y: Column, shape: tuple[int, ...], label_shape: tuple[int, ...]) -> None:
        if len(x) != len(y):
            raise DataError(f"{name}: {len(x)} samples, but {len(y)} labels")
        self.name, self.shape, self._x, self._y, self._label = name, shape, x, y, label_shape

    def __len__(self) -> int:
        return len(self._x)

    def highest(self, ignored: int | None = None) -> int:
        return -1  # labels lie in the files; each batch is checked

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        labels = self._y.rows(indices).reshape(len(indices), *self._label)
        wrong = no_labels(labels)
        if wrong.any():
            at, value = indices[np.argwhere(wrong)[0][0]], labels[wrong][0].item()
            what = f"{value} is not a label: expected a whole number from 0 to {2**31 - 1}"
            raise DataError(f"{self._y.name}: row {at}: {what}")
        return self._x.rows(indices).reshape(len(indices), *self.shape), labels.astype(np.int32)


def files(path: str) -> list[str]:
    """The HDF5 files that a source names: itself, or those in the text at this path, one a line. Raises DataError."""
    if path.endswith(SUFFIXES):
        return [path]
    try:
        with open(path, encoding="utf-8-sig", opener=regular.handle) as file:
            result = [name for line in file for name in _named(line.strip(), os.path.dirname(path))]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: neither ends in {' or '.join(SUFFIXES)}, nor is it a text of such files") from error
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    if not result:
        raise DataError(f"{path}: there are no lines; expected the name of an HDF5 file on each")
    return result


def _named(line: str, folder: str) -> list[str]:
    """The files that a line names: one, or as in Caffe several with blanks between them. A relative path starts at the
    working folder, or else at the text's."""
    names = line.split() if not os.path.exists(line) and not os.path.exists(os.path.join(folder, line)) else [line]
    beside = [os.path.join(folder, name) for name in names]
    return [b if not os.path.exists(n) and os.path.exists(b) else n for n, b in zip(names, beside, strict=True) if n]
