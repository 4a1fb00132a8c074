"""The members of a tar file, by their headers: those of Unix V7, of POSIX (ustar and pax), and of GNU with long names.

A header has a checksum; the contents of a file have none. So each header must lie where the one before ends, and the
archive must end as archives do: with two blocks of zeros, and nothing but zeros behind them. One that is cut or damaged
is refused, since nobody would miss the members behind that place. So are two archives in one file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from minidnn.data.dataset import DataError
from minidnn.files.parts import Held, Parts

BLOCK = 512
LONGEST = 1 << 20  # bytes of an extended header, at most; a name has some 4,096
_ZEROS = bytes(BLOCK)
_AT_ONCE = 1 << 20  # bytes of padding that are read together
_FILES = (b"\0", b"0", b"7")  # the types of files
_BARE = (b"1", b"2", b"3", b"4", b"5", b"6")  # and of links, devices and folders, which have no contents
_KINDS = {**dict.fromkeys(_FILES, "file"), b"1": "hard link", b"2": "symbolic link", b"5": "folder"}
_LONG_NAME, _LONG_LINK, _PAX, _PAX_OF_ALL, _SPARSE = b"L", b"K", (b"x", b"X"), b"g", b"S"
_BEFORE = (_LONG_NAME, _LONG_LINK, *_PAX, _PAX_OF_ALL)  # what goes before a member, and tells of it


@dataclass(frozen=True)
class Member:
    """A file in an archive, or what else has a name there."""

    name: str
    at: int  # the first byte of its contents
    size: int
    kind: str  # "file", "folder", "hard link", "symbolic link", or "member of type '3'"


def members(file: Parts | Held) -> Iterator[Member]:
    """The members in their order. Raises DataError where the archive is cut or damaged, and for a sparse member."""
    at, more = 0, {}  # type: tuple[int, dict[str, str]]
    while (header := _block(file, at)) != _ZEROS:
        kind, size = header[156:157], _size(file, at, header)
        size = 0 if kind in _BARE else size if kind in _BEFORE else int(more.get("size", size))
        begin = at + BLOCK
        if begin + size > file.size:
            what = f"the header at byte {at} promises {size} bytes, and {file.size - begin} follow"
            raise DataError(f"{file.path}: cut within {more.get('path') or _name(header)}: {what}")
        if kind == _LONG_NAME:
            more["path"] = _text(_extension(file, at, size))
        elif kind in _PAX:
            more |= _records(file, at, size)
        elif kind == _PAX_OF_ALL:
            _records(file, at, size, of_all=True)
        elif kind != _LONG_LINK:
            yield _member(file, at, header, size, more)
            more = {}
        at = begin + -(-size // BLOCK) * BLOCK
    if more:
        raise DataError(f"{file.path}: damaged: it ends at byte {at}, where the member of a long name should be")
    _end(file, at)


def _block(file: Parts | Held, at: int) -> bytes:
    """The block at this place, where a header should be."""
    if at + BLOCK <= file.size:
        return file.read(at, BLOCK)
    if not at:
        raise DataError(f"{file.path}: not a plain tar file ({file.size} bytes); one that is packed has to be unpacked")
    raise DataError(f"{file.path}: cut: it ends at byte {file.size}, without the two blocks of zeros of an archive")


def _size(file: Parts | Held, at: int, header: bytes) -> int:
    """The size in a header whose checksum is right."""
    if _number(header[148:156]) not in _sums(header):
        what = f"the header at byte {at} has a wrong checksum"
        none = f"not a plain tar file ({what}); one that is packed has to be unpacked"
        raise DataError(f"{file.path}: {f'damaged: {what}' if at else none}")
    size = _number(header[124:136])
    if size is None:
        raise DataError(f"{file.path}: damaged: the header at byte {at} has no size that is a number")
    return size


def _sums(header: bytes) -> tuple[int, int]:
    """The checksum of a header, of unsigned bytes and of signed ones, as some old programs have it."""
    rest = header[:148] + b" " * 8 + header[156:]
    total = sum(rest)
    return total, total - 256 * sum(byte > 127 for byte in rest)


def _number(field: bytes) -> int | None:
    """A number of a header: octal digits, or 128 and bytes; None if it is neither. No digits are 0."""
    if field[0] == 128:
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0")[0].strip(b" ")
    return int(digits or b"0", 8) if not digits.strip(b"01234567") else None


def _member(file: Parts | Held, at: int, header: bytes, size: int, more: dict[str, str]) -> Member:
    kind, name = header[156:157], more.get("GNU.sparse.name") or more.get("path") or _name(header)
    if kind == _SPARSE or any(key.startswith("GNU.sparse.") for key in more):
        raise DataError(f"{file.path}: {name}, at byte {at}, is stored as a sparse file: pack it without --sparse")
    known = _KINDS.get(kind, f"member of type {kind.decode('ascii', 'backslashreplace')!r}")
    return Member(name, at + BLOCK, size, "folder" if kind == b"\0" and name.endswith("/") else known)


def _name(header: bytes) -> str:
    name, prefix = _text(header[:100]), _text(header[345:500])
    return f"{prefix}/{name}" if prefix and header[257:263] == b"ustar\0" else name


def _text(field: bytes) -> str:
    return os.fsdecode(field.split(b"\0")[0])


def _extension(file: Parts | Held, at: int, size: int) -> bytes:
    """The contents of the extended header at this place."""
    if size > LONGEST:
        raise DataError(f"{file.path}: the extended header at byte {at} has {size} bytes; at most {LONGEST} are read")
    return file.read(at + BLOCK, size)


def _records(file: Parts | Held, at: int, size: int, of_all: bool = False) -> dict[str, str]:
    """The records of a pax header, "30 path=NAME\\n", that tell of a file's name, size or form. Raises DataError if a
    header for all members has such."""
    data, result, begin = _extension(file, at, size).rstrip(b"\0"), {}, 0
    while begin < len(data):
        length = data[begin : begin + 8].partition(b" ")[0]
        end = begin + (int(length) if length.isdigit() else 0)
        key, sign, value = data[begin + len(length) + 1 : end - 1].partition(b"=")
        if not sign or data[end - 1 : end] != b"\n":
            raise DataError(f"{file.path}: damaged: the pax header at byte {at} is none")
        if key in (b"path", b"size") or key.startswith(b"GNU.sparse."):
            result[_text(key)] = os.fsdecode(value)
        begin = end
    size_of_it = result.get("size", "0")
    if (of_all and result) or not size_of_it.isdecimal() or len(size_of_it) > 18:
        raise DataError(f"{file.path}: damaged: the pax header at byte {at} has a {', '.join(result)} that cannot be")
    return result


def _end(file: Parts | Held, at: int) -> None:
    """Check that the archive ends here, where its first block of zeros lies."""
    if at + 2 * BLOCK > file.size:
        raise DataError(f"{file.path}: cut: it ends with one block of zeros, at byte {at}, and archives end with two")
    for begin in range(at, file.size, _AT_ONCE):
        rest = file.read(begin, min(_AT_ONCE, file.size - begin))
        if rest.strip(b"\0"):
            place = begin + len(rest) - len(rest.lstrip(b"\0"))
            what = f"the archive ends at byte {at}, and there is more at byte {place}"
            raise DataError(f"{file.path}: damaged, or several archives in one file: {what}")
