"""Caffe's databases: LMDB, with an image and its label in each record (Datum), read and written.

Records are read where they lie, and none is kept. Their order is that of their keys. lmdb opens a database once in a
process, so all readers of it share one.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from minidnn.data import decoding
from minidnn.data.dataset import DataError
from minidnn.data.encoded import Images, Names, Pictures
from minidnn.files.replace import NEW
from minidnn.schema import InvalidFile
from minidnn.schema.blobs import Picture, datum_of

AT_ONCE = 256  # records that are written together
_LEAST_MAP = 1 << 26  # bytes that a new database may have at first
_KEY = 511  # bytes of a key, at most
_OPEN: WeakValueDictionary[tuple[int, int], _Opened] = WeakValueDictionary()  # by device and number of their file


@dataclass(frozen=True)
class Database(Pictures):
    """`lmdb:PATH`, or a PATH that ends in lmdb: a folder with data.mdb, as Caffe's tools write it."""

    form, suffix = "lmdb:PATH", "lmdb"

    path: str

    def sample_shape(self):
        content = self._first().content
        if not isinstance(content, bytes):
            return content.shape
        return (decoding.channels(content), 0, 0) if self.color is None else super().sample_shape()

    def sample_type(self):
        content = self._first().content
        return "uint8" if isinstance(content, bytes) or content.dtype == np.uint8 else "float32"

    def resident(self):
        result = self.open()
        return result.nbytes if isinstance(result, _Records) else super().resident()

    def open(self):
        if isinstance(self._first().content, bytes):
            return _Encoded(self.path, opened(self.path), self.sample_shape()[0])
        return _Records(self.path, opened(self.path), self.sample_shape())

    def _first(self) -> Picture:
        first = opened(self.path).first()
        if self.color is not None and not isinstance(first.content, bytes):
            raise DataError(f"{self.path}: force_color and force_gray are for encoded images, and it holds arrays")
        return first


class _Opened:
    """A database that is open for reading, also in the children of a fork: they read the same pages of the file."""

    def __init__(self, path: str, environment: Any) -> None:
        self.path, self._environment = path, environment
        self._keys: Names | None = None

    def __len__(self) -> int:
        return self._environment.stat()["entries"]

    def first(self) -> Picture:
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            if not cursor.first():
                raise DataError(f"{self.path}: there are no records")
            return self._picture(bytes(cursor.key()), bytes(cursor.value()))

    def keys(self) -> Names:
        if self._keys is None:
            with self._environment.begin() as transaction, transaction.cursor() as cursor:
                self._keys = Names(cursor.iternext(values=False))
        return self._keys

    def picture(self, key: bytes) -> Picture:
        """The record of this key. Raises DataError if it is no Datum, or none that can be used."""
        with self._environment.begin() as transaction:
            value = transaction.get(key)
        if value is None:
            raise DataError(f"{self.place(key)}: there is no such record any more")
        return self._picture(key, value)

    def place(self, key: bytes) -> str:
        return f"{self.path}: {os.fsdecode(key)}"

    def _picture(self, key: bytes, value: bytes) -> Picture:
        try:
            result = datum_of(value, self.place(key))
        except InvalidFile as error:
            raise DataError(str(error)) from error
        if not 0 <= result.label < 2**31:
            raise DataError(f"{self.place(key)}: label {result.label} is no class number")
        return result


Opened: TypeAlias = _Opened


class _Records:
    """A dataset of records that hold arrays of one shape."""

    def __init__(self, name: str, database: _Opened, shape: tuple[int, ...]) -> None:
        self.name, self.shape, self._database, self._keys = name, shape, database, database.keys()
        self.nbytes = self._keys.nbytes

    def __len__(self) -> int:
        return len(self._keys)

    def highest(self, ignored: int | None = None) -> int:
        return -1  # labels lie within the records; each batch is checked

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        result = []
        for i in indices:
            picture = self._database.picture(key := self._keys[int(i)])
            content = picture.content
            if isinstance(content, bytes) or content.shape != self.shape:
                got = "an encoded image" if isinstance(content, bytes) else f"an array {content.shape}"
                raise DataError(f"{self._database.place(key)}: {got}; the first record is an array {self.shape}")
            result.append((content, picture.label))
        return np.stack([image for image, _ in result]), np.array([label for _, label in result], np.int32)


class _Encoded(Images):
    """A dataset of records that hold encoded images."""

    def __init__(self, name: str, database: _Opened, channels: int) -> None:
        super().__init__(name, np.empty(0, np.int32), channels)
        self._database, self._keys = database, database.keys()

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes

    def __len__(self) -> int:
        return len(self._keys)

    def place(self, index: int) -> str:
        return self._database.place(self._keys[index])

    def read(self, index: int) -> tuple[bytes, int]:
        picture = self._database.picture(self._keys[index])
        if not isinstance(picture.content, bytes):
            raise DataError("an array; the first record is an encoded image")
        return picture.content, picture.label


def opened(path: str) -> Opened:
    """The database at this path, open for reading. Raises DataError if it is none, or if lmdb is not installed."""
    lmdb = _library()
    file = os.path.join(path, "data.mdb") if os.path.isdir(path) else path
    try:
        about = os.stat(file)
        result = _OPEN.get((about.st_dev, about.st_ino))
        if result is None:
            environment = lmdb.open(path, subdir=os.path.isdir(path), readonly=True, lock=False, readahead=False)
            result = _OPEN[about.st_dev, about.st_ino] = _Opened(path, environment)
        return result
    except OSError as error:
        raise DataError(f"{file}: {error.strerror or error}") from error
    except lmdb.Error as error:
        raise DataError(f"{path}: not an LMDB database: {error}") from error


def write(path: Path, pictures: Iterable[tuple[str, Picture]]) -> int:
    """Write a database of these (name, image), whole or not at all; return their number.

    A record's key is its number and its name, so that their order stays. Raises DataError if there is something at
    `path`, and OSError if it cannot be written."""
    lmdb = _library()
    if path.exists():
        raise DataError(f"{path}: is there already; remove it, or name another")
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
        raise DataError("LMDB is read by lmdb, which is not installed here: pip install 'minidnn[lmdb]'") from error
    return lmdb
