"""The user's cache: the folder that keeps what takes long to make, which is compiled kernels and measured costs.

Machine code from it is run, so nobody else may have written it. A folder of the cache belongs to the user, and only
the user may enter it: one of the user's with another mode is closed. A file belongs to the user, and nobody else may
write to it. Both are looked at whenever a file is read. The file is looked at after it is opened, so that nobody can
exchange it in between. Each file of bytes ends with a checksum of these bytes and of the file's name.

Reading a file that cannot be used raises `Refused`, with the reason in one line, or returns no bytes; the caller then
makes them anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from minidnn.errors import BadInput
from minidnn.files.replace import replacing
from minidnn.visible import say_once

CHECKSUM = 32  # bytes at the end of a file
PRIVATE = 0o700
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Refused(BadInput, OSError):
    """A folder or a file of the cache is not used. The message is the reason, in one line."""


def home() -> Path:
    """The folder of the whole cache. A relative XDG_CACHE_HOME is ignored, as its specification says."""
    import platformdirs

    result = Path(platformdirs.user_cache_dir("minidnn"))
    return result if result.is_absolute() else Path("~/.cache/minidnn").expanduser()


def read(path: Path) -> bytes:
    """The bytes of a file of the cache. Raises FileNotFoundError if it is not there, Refused if others may have written
    it, and OSError."""
    _check_folders(path)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOFOLLOW)) as file:
        result = os.fstat(file.fileno())
        if not stat.S_ISREG(result.st_mode):
            raise Refused(f"{path} is not a file")
        _check(path, result)
        return file.read()


def write(path: Path, content: bytes) -> None:
    """Write a file of the cache as a whole or not at all. Raises Refused or OSError if it cannot be written."""
    make_folder(path)
    with replacing(path, "wb", 0o600) as file:
        file.write(content)


def make_folder(path: Path) -> None:
    """Make the folders above a file of the cache. Raises Refused or OSError if they cannot be used."""
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process has just made it
            folder.mkdir(PRIVATE)
    _check_folders(path)


def kept(path: Path) -> bytes | None:
    """The bytes that `keep` kept there; None if there are none, if they are damaged, or if others may have written
    them."""
    try:
        whole = read(path)
    except OSError:
        return None
    content = whole[:-CHECKSUM]
    return content if whole[-CHECKSUM:] == _checksum(path, content) else None


def keep(path: Path, content: bytes, else_: str) -> None:
    """Keep bytes for `kept`. Where the cache cannot be used, say so once on stderr, and what happens because of that:
    "kernels are compiled again at each start"."""
    try:
        write(path, content + _checksum(path, content))
    except OSError as error:
        say_once(f"minidnn: {else_}, since they cannot be kept: {reason(error, path)}")


def reason(error: OSError, path: Path) -> str:
    """Why the cache cannot be used, in one line."""
    why = str(error) if isinstance(error, Refused) else f"{error.filename or path.parent}: {error.strerror or error}"
    return f"{why}; XDG_CACHE_HOME names another folder for the cache"


def _checksum(path: Path, content: bytes) -> bytes:
    """The checksum of the bytes and of the name, so that a file with the contents of another one is refused."""
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest()


def _check_folders(path: Path) -> None:
    """Look at the file's folder, and at the cache's: close them to others. Raises Refused if they are not the user's,
    and OSError if they are not there."""
    top = home()
    for folder in dict.fromkeys((top, path.parent) if top in path.parents else (path.parent,)):
        link = folder.is_symlink()
        if link:  # the link is checked as well as its target, for others could have made it
            _check_owner(folder, folder.lstat())
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | (0 if link else os.O_NOFOLLOW))
        try:
            result = os.fstat(handle)
            _check_owner(folder, result)
            within = top in (folder, *folder.parents)  # a folder that the caller names stays as it is
            if within and stat.S_IMODE(result.st_mode) != PRIVATE and not link:
                with contextlib.suppress(OSError):
                    os.fchmod(handle, PRIVATE)
                result = os.fstat(handle)
            _check(folder, result)
        finally:
            os.close(handle)


def _check(path: Path, status: os.stat_result) -> None:
    _check_owner(path, status)
    if status.st_mode & OTHERS_WRITE:
        raise Refused(f"other users can write {path}: its mode is {stat.S_IMODE(status.st_mode):o}")


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise Refused(f"{path} belongs to the user {status.st_uid}, not to {os.geteuid()}, who runs this")
