"""Caffe's databases: LMDB, with an image and its label in each record (Datum), read and written.

Records are read where they lie, and none is kept. Their order is that of their keys. lmdb is needed to write alone: it
trusts a file that it reads (lmdb_file.py).
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minidnn.data import decoding
from minidnn.data.dataset import DataError
from minidnn.data.encoded import Images, Pictures
from minidnn.data.lmdb_file import File
from minidnn.files.replace import NEW
from minidnn.schema import InvalidFile
from minidnn.schema.blobs import Picture, datum_of

AT_ONCE = 256  # records that are written together
_LEAST_MAP = 1 << 26  # bytes that a new database may have at first
_KEY = 511  # bytes of a key, at most


@dataclass(frozen=True)
class Database(Pictures):
    """`lmdb:PATH`, or a PATH that ends in lmdb: a folder with data.mdb, as Caffe's tools write it."""

    form, suffix = "lmdb:PATH", "lmdb"

    path: str

    def sample_shape(self):
        content = self._first().content
        if not isinstance(content, bytes):
            return content.shape
        channels, *size = (decoding.channels(content), 0, 0) if self.color is None else super().sample_shape()
        return decoding.pixels(content, channels, self.upright).shape if self.alike else (channels, *size)

    def sample_type(self):
        content = self._first().content
        return "uint8" if isinstance(content, bytes) or content.dtype == np.uint8 else "float32"

    def resident(self):
        result = self.open()
        return result.nbytes if isinstance(result, _Records) else super().resident()

    def open(self):
        if isinstance(self._first().content, bytes):
            return _Encoded(_Contents(self.path), self.sample_shape()[0]).of(self)
        return _Records(_Contents(self.path), self.sample_shape())

    def _first(self) -> Picture:
        record = _opened(self.path).first()
        if record is None:
            raise DataError(f"{self.path}: there are no records")
        try:
            first = _picture(record[1])
        except (DataError, InvalidFile) as error:
            raise DataError(f"{_place(self.path, record[0])}: {error}") from error
        if self.color is not None and not isinstance(first.content, bytes):
            raise DataError(f"{self.path}: force_color and force_gray are for encoded images, and it holds arrays")
        return first


class _Contents:
    """All records of a database, also in the children of a fork: a file is read by position."""

    def __init__(self, path: str) -> None:
        """Raises DataError if it is no whole database."""
        self.path, self._records = path, _opened(path).records()
        self.nbytes = self._records.nbytes

    def __len__(self) -> int:
        return len(self._records)

    def picture(self, index: int) -> Picture:
        """Raises DataError if the record is no Datum, or none that can be used."""
        value = self._records.value(index)
        try:
            return _picture(value)
        except (DataError, InvalidFile) as error:
            raise DataError(f"{self.place(index)}: {error}") from error

    def place(self, index: int) -> str:
        return _place(self.path, self._records.key(index))


class _Records:
    """A dataset of records that hold arrays of one shape."""

    def __init__(self, contents: _Contents, shape: tuple[int, ...]) -> None:
        self.name, self.shape, self._contents, self.nbytes = contents.path, shape, contents, contents.nbytes

    def __len__(self) -> int:
        return len(self._contents)

    def highest(self, ignored: int | None = None) -> int:
        return -1  # labels lie within the records; each batch is checked

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        result = []
        for i in indices.tolist():
            picture = self._contents.picture(i)
            content = picture.content
            if isinstance(content, bytes) or content.shape != self.shape:
                got = "an encoded image" if isinstance(content, bytes) else f"an array {content.shape}"
                raise DataError(f"{self._contents.place(i)}: {got}; the first record is an array {self.shape}")
            result.append((content, picture.label))
        return np.stack([image for image, _ in result]), np.array([label for _, label in result], np.int32)


class _Encoded(Images):
    """A dataset of records that hold encoded images."""

    def __init__(self, contents: _Contents, channels: int) -> None:
        super().__init__(contents.path, np.empty(0, np.int32), channels)
        self._contents = contents

    @property
    def nbytes(self) -> int:
        return self._contents.nbytes

    def __len__(self) -> int:
        return len(self._contents)

    def place(self, index: int) -> str:
        return self._contents.place(index)

    def read(self, index: int) -> tuple[bytes, int]:
        picture = self._contents.picture(index)
        if not isinstance(picture.content, bytes):
            raise DataError("an array; the first record is an encoded image")
        return picture.content, picture.label


def _place(path: str, key: bytes) -> str:
    return f"{path}: {os.fsdecode(key)}"


def _picture(value: bytes) -> Picture:
    """The image of a record. Raises InvalidFile if it is no Datum, and DataError if it is none that can be used."""
    result = datum_of(value, "the record")
    if not 0 <= result.label < 2**31:
        raise DataError(f"label {result.label} is not a class number")
    values = result.content
    if not isinstance(values, bytes) and not values.size:
        raise DataError(f"an array {values.shape}, which has no values")
    if not isinstance(values, bytes) and values.dtype != np.uint8 and not np.isfinite(values).all():
        raise DataError("it holds values that are not finite")
    return result


def _opened(path: str) -> File:
    """The database at this path. Raises DataError if it is none."""
    file = os.path.join(path, "data.mdb") if os.path.isdir(path) else path
    refuse_leveldb(path)
    try:
        return File(file, path)
    except OSError as error:
        raise DataError(f"{file}: {error.strerror or error}") from error


def refuse_leveldb(path: str) -> None:
    """Raise DataError if the folder is a database of Caffe's other kind, or is not there and has a name of one."""
    called = path.rstrip("/").endswith("leveldb") and not os.path.exists(path)
    if called or os.path.isfile(os.path.join(path, "CURRENT")):
        raise DataError(f"{path}: a LevelDB database, which minidnn does not read; convert it to LMDB")


def write(path: Path, pictures: Iterable[tuple[str, Picture]]) -> int:
    """Write a database of these (name, image), whole or not at all; return their number.

    A record's key is its number and its name, so that their order stays. Raises DataError if there is something at
    `path`, and OSError if it cannot be written."""
    lmdb = _library()
    if path.exists():
        raise DataError(f"{path}: exists already; remove it, or name another")
    made = path.parent / f".{path.name}.{secrets.token_hex(4)}{NEW}"
    count = 0
    try:
        with lmdb.open(str(made), map_size=_LEAST_MAP) as environment:
            batch: list[tuple[bytes, bytes]] = []
            for name, picture in pictures:
                batch.append((f"{count:08d}_{name}".encode("utf-8", "surrogateescape")[:_KEY], picture.to_bytes()))
                count += 1
                if len(batch) == AT_ONCE:
                    _put(lmdb, environment, batch)
                    batch = []
            _put(lmdb, environment, batch)
        (made / "lock.mdb").unlink()
        os.rename(made, path)
    except lmdb.Error as error:
        raise DataError(f"{path}: {error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return count


def _put(lmdb: Any, environment: Any, batch: list[tuple[bytes, bytes]]) -> None:
    """Write these records; a database that is full gets twice the room."""
    while True:
        try:
            with environment.begin(write=True) as transaction:
                for key, value in batch:
                    transaction.put(key, value)
            return
        except lmdb.MapFullError:
            environment.set_mapsize(2 * environment.info()["map_size"])


def _library() -> Any:
    try:
        import lmdb
    except ImportError as error:
        raise DataError("LMDB is written by lmdb, which is not installed here: pip install 'minidnn[lmdb]'") from error
    return lmdb
