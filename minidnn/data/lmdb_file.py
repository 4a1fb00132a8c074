"""LMDB's file, read page by page. Nothing of it is mapped, and no number in it is believed.

LMDB's library maps the file and trusts it: a page that is damaged or not there ends the process by a signal, or gives
other records without a word. Here each number is compared with the file first, and each page in use must be of its
kind, and used once: by the tree of the records, by that of the free pages, or by none. The format has no checksum:
bytes within a value may be others.
"""

from __future__ import annotations

import numpy as np

from minidnn.data import lmdb_meta
from minidnn.data.dataset import DataError
from minidnn.data.lmdb_meta import Meta
from minidnn.data.lmdb_tree import Pages, Tree
from minidnn.files.parts import Parts


class File:
    """The records of a database. They stay on the disk."""

    def __init__(self, path: str, name: str) -> None:
        """`name` is the database's in errors. Raises DataError if it is none, and OSError if it cannot be opened."""
        file = Parts(path, DataError)
        self._older, self._newer = lmdb_meta.read(file, name)
        self._pages = Pages(file, name, self._newer.last, self._newer.free.page_size)

    def first(self) -> tuple[bytes, bytes] | None:
        """The key and the value of the first record; None if there is none. Raises DataError."""
        return Tree(self._pages, self._newer.records).first()

    def records(self) -> Tree:
        """The records, in the order of their keys. Raises DataError if a page is damaged or missing. The tree's methods
        raise it if a value's page is, and if the file has been written to."""
        result = Tree(self._pages, self._newer.records)
        used = result.index()
        pages, free, last = self._free(self._newer)
        if last < self._newer.transaction > 1 and self._older.records.depth:  # a transaction frees the root that was
            what = f"transaction {self._newer.transaction} freed no page"
            raise self._pages.bad(self._newer.transaction % 2, what)
        self._check(np.concatenate([used, pages, np.stack([free, np.ones_like(free)], 1)]), free)
        self._free(self._older)
        return result

    def _check(self, used: np.ndarray, free: np.ndarray) -> None:
        """Raise DataError if the file lacks a page, or uses one twice. `used`: rows (first page, count)."""
        first, count = used[np.argsort(used[:, 0], kind="stable")].T
        after = first + count
        if (twice := first[1:] < after[:-1]).any():
            raise self._pages.bad(int(first[1:][twice][0]), "it is used twice")
        if len(used) and (first[0] < 2 or after[-1] > self._pages.last + 1):
            what = f"pages {first[0]} to {after[-1] - 1} are used; expected 2 to {self._pages.last}"
            raise self._pages.bad(int(first[0]), what)
        whole = self._pages.file.size // self._pages.size
        if np.count_nonzero(free >= whole) < self._pages.last + 1 - whole:
            raise self._pages.torn()

    def _free(self, meta: Meta) -> tuple[np.ndarray, np.ndarray, int]:
        """The pages of the tree of free pages, rows (first, count); the free pages; the last transaction that freed
        some."""
        tree, last, result = Tree(self._pages, meta.free), 0, [np.empty(0, np.int64)]
        used = tree.index()
        for i in range(len(tree)):
            last, values = int.from_bytes(tree.key(i), "little"), tree.value(i)
            numbers = np.frombuffer(values, "<u8", len(values) // 8)
            if not 0 < last <= meta.transaction or not len(numbers) or numbers[0] >= len(numbers):
                raise self._pages.bad(meta.free.page, f"no list of the free pages of transaction {last}")
            result.append(numbers[1 : 1 + int(numbers[0])].clip(max=2**62).astype(np.int64))  # beyond each file
        return used, np.concatenate(result), last
