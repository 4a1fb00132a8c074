"""Writing a file as a whole or not at all: an existing file stays until the new one is complete."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

NEW = ".minidnn-new"  # ends the names of files that are being written: ".<name>.<8 hex digits>.minidnn-new"
_RANDOM = re.compile(r"\.[0-9a-f]{8}" + re.escape(NEW))
_NO_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)  # of file systems that have none


@contextlib.contextmanager
def replacing(path: Path, mode: str = "w", permissions: int = 0o666) -> Iterator[IO[Any]]:
    """A new file next to `path`, open in this mode. It replaces `path` when the block ends without an error.

    permissions: of the new file, before the umask takes some away

    The file and its folder are flushed to the disk, so that it survives a power cut. After an error the new file is
    removed, and `path` is unchanged. A process that is killed in the block leaves the new file; the next `replacing` of
    the same path removes it. Text is UTF-8. Raises OSError if the folder does not exist, cannot be written to, or is
    full."""
    remove_left(path.parent, path.name)
    handle, name = _new(path, permissions)
    try:
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    _flush_folder(path.parent)


def try_replacing(path: Path) -> None:
    """Raise OSError if `replacing(path)` would fail now, for example because its folder cannot be written to."""
    handle, name = _new(path)
    try:
        os.unlink(name)  # before the lock goes: after it, another process's remove_left may take the file away
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make the folder and those above it that are absent; their entries survive a power cut."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        _flush_folder(new.parent)


def remove_left(folder: Path, begin: str) -> None:
    """Remove the new files that killed processes left in this folder for paths whose names begin so.

    Each `replacing` locks its file. So a file that can be locked belongs to no living process. Where the file system
    has no locks, all files stay."""
    for result in folder.glob(f".{glob.escape(begin)}*{NEW}"):
        if not _RANDOM.fullmatch(result.name, len(result.name) - len(NEW) - 9):
            continue
        with contextlib.suppress(OSError), contextlib.ExitStack() as undo:
            handle = os.open(result, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            undo.callback(os.close, handle)
            if stat.S_ISREG(os.fstat(handle).st_mode):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(result)


def _new(path: Path, permissions: int = 0o666) -> tuple[int, str]:
    """(descriptor, name) of a new, empty, locked file next to `path`."""
    while True:
        name = path.parent / f".{path.name}.{secrets.token_hex(4)}{NEW}"
        try:
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, permissions)
        except FileExistsError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_nlink:
                return handle, str(name)
        except BlockingIOError:
            pass  # another process's remove_left came between the file and its lock
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return handle, str(name)
            os.close(handle)
            os.unlink(name)
            raise
        os.close(handle)


def _flush_folder(folder: Path) -> None:
    """Make a folder's entries survive a power cut, unless its file system cannot flush folders, as some of networks."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # it may be written and not read
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(handle)


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
