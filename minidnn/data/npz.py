"""NumPy's npz: an array `x` (or `images`) and an array `y` (or `labels`).

The files are not trusted: the shape that a header promises must fit into the bytes that follow before anything of that
size is allocated.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import zipfile
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from minidnn.data import quiet
from minidnn.data.dataset import Arrays, DataError, Source, label_shape, numbers
from minidnn.files import regular

IMAGES, LABELS = ("x", "images"), ("y", "labels")  # the names that these arrays may have
USED = (*IMAGES, *LABELS)
MAGIC, SUFFIX = b"\x93NUMPY", ".npy"  # an npy file's first bytes, and the suffix of those within an npz file
HEADER = 1 << 14  # bytes: NumPy takes headers of 10,000 at most
T = TypeVar("T")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # an object's, in a message of Python's


@dataclass(frozen=True)
class Npz(Source):
    """`npz:PATH`, or a PATH that ends in .npz."""

    form, suffix = "npz:PATH", ".npz"

    path: str

    def sample_shape(self):
        return sample_shape(self.path)

    def label_shape(self):
        shape, _ = _pick(self.path, headers(self.path), *LABELS)
        return label_shape(shape)

    def sample_type(self):
        return sample_type(self.path)

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
    with _members(path) as members:
        return {name: member.array() for name, member in members.items() if names is None or name in names}


def sample_shape(path: str | Path) -> tuple[int, ...]:
    """The shape of one image, from the header of its array alone. Raises DataError if the file cannot be used."""
    shape, dtype = _pick(path, headers(path), *IMAGES)
    numbers(str(path), shape, dtype)
    return (1, *shape[1:]) if len(shape) == 3 else tuple(shape[1:])


def sample_type(path: str | Path) -> str:
    """ "uint8" if the images' array has that type, else "float32". Raises DataError if the file cannot be used."""
    _, dtype = _pick(path, headers(path), *IMAGES)
    return "uint8" if dtype == np.uint8 else "float32"


def headers(path: str | Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """{name: (shape, type)} of the images and the labels. Raises DataError if the file cannot be used."""
    with _members(path) as members:
        return {name: member.header() for name, member in members.items() if name in USED}


@dataclass(frozen=True)
class _Member:
    """An npy file, maybe within an npz file."""

    open: Callable[[], Any]
    name: str
    nbytes: int

    def header(self) -> tuple[tuple[int, ...], np.dtype]:
        """(shape, type). Raises ValueError unless the file holds so many values."""
        with self.open() as file:
            begin = io.BytesIO(file.read(HEADER))  # the header's length may lie: no more than this is allocated for it
        version = np.lib.format.read_magic(begin)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(begin)
        follow = self.nbytes - begin.tell()
        promised = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or (promised > follow and not dtype.hasobject):
            raise ValueError(f"{self.name} promises {dtype} of shape {shape}, {promised} bytes; {follow} follow")
        return shape, dtype

    def array(self) -> np.ndarray:
        self.header()
        with self.open() as file:
            return np.lib.format.read_array(file, allow_pickle=False)


@contextlib.contextmanager
def _members(path: str | Path) -> Iterator[dict[str, _Member]]:
    """The arrays of an npz file by name, or {"x": that of an npy file}. All errors become DataErrors."""
    size = 0
    try:
        with quiet.here(), regular.opened(path) as file:  # NumPy warns of headers that Python 2 wrote
            size = file.seek(0, 2)
            yield _within(file, size)
    except (MemoryError, DataError):
        raise
    except Exception as error:  # whatever zipfile, its compressions and NumPy raise, the file is to blame
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{path}: {error.strerror}") from error
        why = _ADDRESS.sub("", str(error))
        raise DataError(f"{path}: not a whole npz or npy file ({size} bytes): {why}") from error


def _within(file: IO[bytes], size: int) -> dict[str, _Member]:
    def again() -> contextlib.AbstractContextManager[IO[bytes]]:
        file.seek(0)
        return contextlib.nullcontext(file)

    with again():
        begin = file.read(len(MAGIC))
    if begin == MAGIC:
        return {"x": _Member(again, "it", size)}
    if not begin.startswith(b"PK"):
        raise ValueError("it begins like neither")
    archive = zipfile.ZipFile(file)
    return {
        info.filename.removesuffix(SUFFIX): _Member(partial(archive.open, info), info.filename, info.file_size)
        for info in archive.infolist()
        if info.filename.endswith(SUFFIX)  # others are no arrays: a README
    }


def _pick(path: str | Path, arrays: Mapping[str, T], *names: str) -> T:
    for name in names:
        if name in arrays:
            return arrays[name]
    with _members(path) as members:
        raise DataError(f"{path}: holds {', '.join(members) or 'nothing'}; expected an array {' or '.join(names)}")
