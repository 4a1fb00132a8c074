"""Files that are opened to be read: regular ones alone.

To open a pipe waits for its writer, perhaps for ever; a device may have no end, and may do something when it is
opened. So the kind of a file is looked at before it is opened, and once more after it: it may be exchanged in between.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from minidnn.errors import BadInput

_WHAT = "not a regular file"


class NotRegular(BadInput, OSError):
    """A pipe, a socket or a device, where a file should be."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: {_WHAT}")
        self.filename, self.strerror = path, _WHAT


def handle(path: str, flags: int) -> int:
    """The number of an open file; an `opener` for Python's `open`. Raises OSError if it cannot be opened, and
    NotRegular or IsADirectoryError if it is no regular file."""
    _check(path, os.stat(path))
    result = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(path, os.fstat(result))
    except OSError:
        os.close(result)
        raise
    return result


def opened(path: str | Path) -> BinaryIO:
    """A regular file, open to read its bytes. Raises OSError."""
    if "\0" in str(path):  # a ValueError of Python's, before it asks an opener
        raise FileNotFoundError(errno.ENOENT, "a file name cannot contain a zero byte", str(path))
    return open(path, "rb", opener=handle)


def content(path: str | Path) -> bytes:
    """All bytes of a regular file. Raises OSError."""
    with opened(path) as file:
        return file.read()


def _check(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(path)
