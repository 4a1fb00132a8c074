"""The meta pages of LMDB's file: pages 0 and 1, written in turn, of which that of the later transaction counts.

The format is LMDB 0.9's, of little-endian machines with 64 bits. Each number is compared with the others before it is
used.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from minidnn.data.dataset import DataError
from minidnn.files.parts import Parts

HEAD = struct.Struct("<QHHHH")  # of a page: number, padding, flags, end of the list of nodes, begin of the nodes
_MAGIC, _VERSION, _FLAG = 0xBEEFC0DE, 1, 8
_EMPTY = 2**64 - 1  # the root's page of an empty tree
_SIZES = [1 << i for i in range(9, 16)]  # that pages may have
_BEGIN = struct.Struct("<II16x")  # behind the header: magic, version
_TREE = struct.Struct("<IHH5Q")
_END = struct.Struct("<QQ")  # the last page, the transaction
_SIZE = HEAD.size + _BEGIN.size + 2 * _TREE.size + _END.size


class Root(NamedTuple):
    """What a meta page says of a tree."""

    page_size: int  # of the file, if it is the tree of free pages
    flags: int
    depth: int
    branches: int  # pages of each kind; own: those of values that lie in no leaf
    leaves: int
    own: int
    entries: int
    page: int


class Meta(NamedTuple):
    free: Root
    records: Root
    last: int  # page
    transaction: int


def bad(name: str, page: int, what: str) -> DataError:
    """The error of a page that is not as it should be. `name`: of the database"""
    return DataError(f"{name}: a damaged LMDB database: page {page}: {what}")


def read(file: Parts, name: str) -> tuple[Meta, Meta]:
    """The older and the newer meta page. Raises DataError unless they are those of a file of LMDB's."""
    first = _page(file, name, 0, 0)
    second = _page(file, name, 1, first.free.page_size)
    sizes = first.free.page_size, second.free.page_size
    if sizes[0] != sizes[1]:
        raise bad(name, 1, f"pages have {sizes[1]} bytes, and by page 0 {sizes[0]}")
    numbers = first.transaction, second.transaction
    if numbers != (0, 0) and (abs(numbers[0] - numbers[1]) != 1 or numbers[0] % 2):
        raise bad(name, 1, f"transaction {numbers[1]} is not next to that of page 0, {numbers[0]}")
    older, newer = sorted((first, second), key=lambda meta: meta.transaction)
    if older.last > newer.last:
        raise bad(name, newer.transaction % 2, f"the last page is {newer.last}, and was {older.last} before")
    return older, newer


def _page(file: Parts, name: str, number: int, at: int) -> Meta:
    """The meta page of this number, at this byte."""
    none, raw = f"{name}: not an LMDB database", file.read(at, _SIZE) if file.size >= at + _SIZE else b""
    if not raw:
        raise DataError(f"{none}: {file.size} bytes, which are no two pages (MDB_INVALID)")
    own, _, flags, _, _ = HEAD.unpack_from(raw)
    magic, version = _BEGIN.unpack_from(raw, HEAD.size)
    if (own, flags, magic) != (number, _FLAG, _MAGIC):
        what = f"page {number} is no meta page of a little-endian machine with 64 bits (MDB_INVALID)"
        raise DataError(f"{none}: {what}")
    if version != _VERSION:
        raise DataError(f"{none} of version {_VERSION}, but of {version} (MDB_VERSION_MISMATCH)")
    free, records = (Root._make(_TREE.unpack_from(raw, HEAD.size + _BEGIN.size + i * _TREE.size)) for i in range(2))
    result = Meta(free, records, *_END.unpack_from(raw, _SIZE - _END.size))
    _check(name, number, result)
    return result


def _check(name: str, number: int, meta: Meta) -> None:
    if meta.free.page_size not in _SIZES:
        raise bad(name, number, f"pages have {meta.free.page_size} bytes")
    if meta.last >= 2**48:
        raise bad(name, number, f"the last page is {meta.last}")
    if meta.records.flags:
        what = f"its records have flags {meta.records.flags:#x}: another order, or several values for a key"
        raise bad(name, number, f"{what}; Caffe's have none")
    for tree in (meta.free, meta.records):
        empty = tree.page == _EMPTY
        if not empty and not 2 <= tree.page <= meta.last:
            raise bad(name, number, f"a tree has its root in page {tree.page}, and the last page is {meta.last}")
        if empty != (tree.depth == 0) or empty != (tree.entries == 0):
            raise bad(name, number, f"a tree of {tree.depth} levels has {tree.entries} entries")
