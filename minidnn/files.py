"""Writing a file as a whole or not at all: an existing file stays until the new one is complete."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A new file next to `path`, open in this mode. It replaces `path` when the block ends without an error.

    It is flushed to disk before that. After an error the new file is removed, and `path` is unchanged. Raises OSError
    if the folder does not exist, cannot be written to, or is full."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    try:
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())  # only the owner may read a file of mkstemp
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def unwritable(path: Path, *suffixes: str) -> str | None:
    """Why a file at `path` with one of these suffixes cannot be written; None if it can. Ask before a long run."""
    if path.suffix not in suffixes:
        return f"expected a name that ends in {' or '.join(suffixes)}"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if path.is_dir():
        return "is a folder"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f"the folder {path.parent} cannot be written to"
    return None
