"""A large file, read in parts; it stays open as long as one of its parts may be wanted. Or bytes, read alike."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from minidnn.errors import BadInput
from minidnn.files import regular

AHEAD = 1 << 16  # bytes that `near` reads at once


class Parts:
    """The bytes of a file as it was when it was opened: it may be replaced or removed meanwhile."""

    def __init__(self, path: str | Path, error: Callable[[str], BadInput]) -> None:
        """Raises the error that `error` makes if it is no regular file, and OSError if it cannot be opened."""
        self.path, self.error = path, error
        if Path(path).exists() and not Path(path).is_file():  # a folder, or a device that one could read forever
            raise error(f"{path}: not a regular file")
        self.handle = regular.handle(os.fspath(path), os.O_RDONLY)
        self.known = os.fstat(self.handle)
        self.size = self.known.st_size
        self._ahead, self._begin = b"", 0

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            os.close(self.handle)

    def name(self) -> str:
        """A name of the open file for libraries, also if the path has become another file's."""
        mine = f"/proc/self/fd/{self.handle}"
        return mine if os.path.exists(mine) else str(self.path)

    def read(self, at: int, size: int) -> bytes:
        """These bytes. Raises the error if the file has been written to since it was opened."""
        result = b""
        while len(result) < size and (more := os.pread(self.handle, size - len(result), at + len(result))):
            result += more
        now = os.fstat(self.handle)
        if len(result) < size or (now.st_size, now.st_mtime_ns) != (self.known.st_size, self.known.st_mtime_ns):
            raise self.error(f"{self.path}: changed while it was read")
        return result

    def near(self, at: int, size: int) -> bytes:
        """The same for a few bytes, of which the next ones will be wanted, too; fewer at the end of the file."""
        if not (self._begin <= at and at + size <= self._begin + len(self._ahead)):
            self._ahead, self._begin = self.read(at, min(max(AHEAD, size), self.size - at)), at
        return self._ahead[at - self._begin : at - self._begin + size]


class Held:
    """Bytes in memory, read as Parts are."""

    def __init__(self, data: bytes, name: str) -> None:
        self.path, self.size, self._data = name, len(data), data

    def read(self, at: int, size: int) -> bytes:
        return self._data[at : at + size]

    near = read
