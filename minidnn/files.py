"""Writing a file whole or not at all: what was there before stays until its successor is complete."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A new file beside `path`, flushed to disk, that takes its name where the block ends well; else nothing is left
    of it. Raises OSError where the folder, which must be there, cannot be written to or is full."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    try:
        with os.fdopen(handle, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())  # mkstemp gives it to its owner alone
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
    """Why no file of these suffixes can be written there: better said before a long run than after it."""
    if path.suffix not in suffixes:
        return f"expected a name that ends in {' or '.join(suffixes)}"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if path.is_dir():
        return "is a folder"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f"the folder {path.parent} cannot be written to"
    return None
