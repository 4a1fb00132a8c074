"""A file that gets whole records, one after another: what cannot be written leaves no part of itself behind."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_BLOCK = 2**16  # bytes that are read at once


class Appended:
    """A file open for records. Each is handed to the system at once, so that other programs can read it."""

    def __init__(self, path: Path, keep: int = 0, new: bool = False) -> None:
        """Keep so many bytes of the file that is there, and write after them. `new`: there must be none.

        Raises OSError, FileExistsError among others."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if new else 0)
        self._file = os.fdopen(os.open(path, flags, 0o666), "wb", buffering=0)
        self._cut(keep)

    def write(self, record: bytes) -> None:
        """Write a record. Raises OSError; then the file ends with the record before."""
        rest = memoryview(record)
        try:
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError:
            with contextlib.suppress(OSError):
                self._cut(self._end)
            raise
        self._end += len(record)

    def _cut(self, end: int) -> None:
        self._end = end
        self._file.truncate(end)
        self._file.seek(end)

    def close(self) -> None:
        """Close the file. Raises OSError."""
        self._file.close()


def whole_lines(path: Path) -> int:
    """The bytes of the file up to the end of its last whole line. Raises OSError."""
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - _BLOCK)
            file.seek(begin)
            if (result := file.read(end - begin).rfind(b"\n")) >= 0:
                return begin + result + 1
            end = begin
    return 0
