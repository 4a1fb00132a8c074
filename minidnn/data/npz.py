"""NumPy's npz: an array `x` (or `images`) and an array `y` (or `labels`)."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from minidnn.data.dataset import Arrays, DataError, Source, numbers

IMAGES, LABELS = ("x", "images"), ("y", "labels")  # the names that these arrays may have
USED = (*IMAGES, *LABELS)
T = TypeVar("T")


@dataclass(frozen=True)
class Npz(Source):
    """`npz:PATH`, or a PATH that ends in .npz."""

    form, suffix = "npz:PATH", ".npz"

    path: str

    @classmethod
    def parse(cls, text, split):
        return cls(split, text) if text else None

    def sample_shape(self):
        return sample_shape(self.path)

    def resident(self):
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in headers(self.path).values())

    def open(self):
        return read(self.path)


def read(path: str | Path) -> Arrays:
    """The images and labels of an npz file. Its other arrays are not read. Raises DataError."""
    arrays = read_arrays(path, USED)
    return Arrays.of(str(path), _pick(path, arrays, *IMAGES), _pick(path, arrays, *LABELS))


def read_arrays(path: str | Path, names: Container[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an npz file by name, or {"x": array} of an npy file. Raises DataError.

    names: the arrays to read; None: all"""
    _regular(path)
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"x": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files if names is None or name in names}
    except MemoryError:
        raise
    except Exception as error:  # whatever zipfile, its compressions and NumPy raise, the file is to blame
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{path}: {error.strerror}") from error
        size = Path(path).stat().st_size
        why = "it begins like neither" if "pickle" in str(error) and not _known(path) else error
        raise DataError(f"{path}: not a whole npz or npy file ({size} bytes): {why}") from error


def sample_shape(path: str | Path) -> tuple[int, ...]:
    """The shape of one image, from the header of its array alone. Raises DataError if the file cannot be used."""
    shape, dtype = _pick(path, headers(path), *IMAGES)
    numbers(str(path), shape, dtype)
    return (1, *shape[1:]) if len(shape) == 3 else tuple(shape[1:])


def headers(path: str | Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """{name: (shape, type)} of the images and the labels. Raises DataError if the file cannot be used."""
    _regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: _header(archive, name) for name in USED if f"{name}.npy" in archive.namelist()}
    except MemoryError:
        raise
    except Exception:  # to read the arrays gives the right error
        return {name: (array.shape, array.dtype) for name, array in read_arrays(path, USED).items()}


def _header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype]:
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        return shape, dtype


def _pick(path: str | Path, arrays: Mapping[str, T], *names: str) -> T:
    for name in names:
        if name in arrays:
            return arrays[name]
    with np.load(path) as loaded:
        held = ", ".join(loaded.files) or "nothing"
    raise DataError(f"{path}: holds {held}; expected an array {' or '.join(names)}")


def _regular(path: str | Path) -> None:
    """Raise DataError for a device or a pipe, which one might read forever."""
    if Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
        raise DataError(f"{path}: not a regular file")


def _known(path: str | Path) -> bool:
    """Whether the file begins like an npy or npz file."""
    with open(path, "rb") as file:
        return file.read(6).startswith((b"\x93NUMPY", b"PK"))
