"""A B+ tree in LMDB's file: its nodes, in their order, and the pages that it uses.

A leaf's node has a key and a value, or the number of the first of the value's own pages. A branch's nodes name the
pages below it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from minidnn.data import lmdb_meta
from minidnn.data.dataset import DataError
from minidnn.data.lmdb_meta import HEAD, Root
from minidnn.files.parts import Parts

T = TypeVar("T", int, np.ndarray)
_BRANCH, _LEAF, _OWN = 1, 2, 4  # the flags of pages; _OWN: of a value
_LARGE = 1  # the flag of a node whose value has pages of its own
_INTEGERS = 8  # the flag of a tree whose keys are integers
_OWN_HEAD = struct.Struct("<Q2xHI")  # number, flags, count of pages
_Node: TypeAlias = tuple[int, bytes, int, int]  # its place, key, the value's place (its first own page's), its size
_NODE = struct.Struct("<HHHH")  # two halves of the value's size, flags, bytes of the key; in a branch a page in thirds


@dataclass(frozen=True)
class Pages:
    """The pages of a file, up to the last one of a meta page."""

    file: Parts
    name: str
    last: int
    size: int  # of a page

    def read(self, number: int, size: int, count: int = 1) -> bytes:
        """The first bytes of so many pages. Raises DataError if they are not there."""
        if not 2 <= number <= self.last + 1 - count:
            raise self.bad(number, f"{count} pages from it on are used, and the last one is {self.last}")
        if (number + count) * self.size > self.file.size:
            raise self.torn()
        return self.file.read(number * self.size, size)

    def bad(self, number: int, what: str) -> DataError:
        return lmdb_meta.bad(self.name, number, what)

    def torn(self) -> DataError:
        pages = self.last + 1
        what = f"its {pages} pages take {pages * self.size} bytes, and it has {self.file.size}"
        return DataError(f"{self.name}: truncated: {what}; copy it again")

    def own(self, size: T) -> T:
        """How many pages of its own a value of this size needs."""
        return (_OWN_HEAD.size + size - 1) // self.size + 1


class Tree:
    """The nodes of a tree by their numbers. Only their places are in memory."""

    def __init__(self, pages: Pages, root: Root) -> None:
        self._pages, self._root = pages, root
        self._nodes, self._places, self._sizes = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return 3 * self._nodes.itemsize * len(self)

    def first(self) -> tuple[bytes, bytes] | None:
        """The key and the value of the first node; None if there is none."""
        node = next(self._walk(array("q")), None)
        return None if node is None else (node[1], self._value(*node[2:]))

    def index(self) -> np.ndarray:
        """Take note of all nodes. Returns the pages of the tree and its values: rows (first, count)."""
        pages, before = array("q"), b""
        for at, key, place, size in self._walk(pages):
            key = key[::-1] if self._root.flags & _INTEGERS else key
            if key <= before:
                raise self._pages.bad(at // self._pages.size, "its keys are not in their order")
            before = key
            self._nodes.append(at)
            self._places.append(place)
            self._sizes.append(size)
        single = np.array(pages, np.int64)
        return np.concatenate([np.stack([single, np.ones_like(single)], 1), self._own()])

    def key(self, index: int) -> bytes:
        file, at = self._pages.file, self._nodes[index]
        *_, size = _NODE.unpack(file.read(at, _NODE.size))
        return file.read(at + _NODE.size, size)

    def value(self, index: int) -> bytes:
        return self._value(self._places[index], self._sizes[index])

    def _value(self, place: int, size: int) -> bytes:
        if place % self._pages.size == 0:
            self._own_pages(place // self._pages.size, size)
            place += _OWN_HEAD.size
        return self._pages.file.read(place, size)

    def _own_pages(self, number: int, size: int) -> int:
        """How many pages the value there has: as many as it needs, or more if it was larger once."""
        needs = self._pages.own(size)
        own, flags, count = _OWN_HEAD.unpack(self._pages.read(number, _OWN_HEAD.size, needs))
        if (own, flags) != (number, _OWN) or count < needs:
            what = f"a header of page {own} with flags {flags:#x} and {count} pages"
            raise self._pages.bad(number, f"{what}; expected flags {_OWN:#x} and {needs} pages")
        return count

    def _own(self) -> np.ndarray:
        """The pages that values have of their own: rows (first, count)."""
        places, sizes = np.array(self._places, np.int64), np.array(self._sizes, np.int64)
        own = places % self._pages.size == 0
        first, sizes = places[own] // self._pages.size, sizes[own]
        count = self._pages.own(sizes)
        if count.sum() != self._root.own:  # then there are some of values that were larger once
            there = zip(first.tolist(), sizes.tolist(), strict=True)
            count = np.array([self._own_pages(*each) for each in there], np.int64)
        if count.sum() != self._root.own:
            raise self._pages.bad(self._root.page, f"its tree has {count.sum()} pages of values, not {self._root.own}")
        return np.stack([first, count], 1)

    def _walk(self, pages: array[int]) -> Iterator[_Node]:
        """The nodes of the leaves, from left to right. `pages` gets the pages of the tree."""
        leaves = entries = 0
        waiting = [(self._root.page, self._root.depth)] if self._root.depth else []
        while waiting:
            number, depth = waiting.pop()
            pages.append(number)
            if len(pages) > self._root.branches + self._root.leaves:
                raise self._pages.bad(number, f"its tree has more pages than {len(pages) - 1}")
            if depth > 1:
                waiting.extend((child, depth - 1) for child in reversed(self._children(number)))
                continue
            nodes = self._leaf(number)
            leaves, entries = leaves + 1, entries + len(nodes)
            yield from nodes
        there = len(pages) - leaves, leaves, entries
        if there != (self._root.branches, self._root.leaves, self._root.entries):
            words = "its tree has {} branches, {} leaves and {} entries".format(*there)
            raise self._pages.bad(self._root.page, f"{words}; a meta page counts others")

    def _children(self, number: int) -> list[int]:
        """The pages below a branch."""
        page, _, places = self._places_in(number, _BRANCH)
        result = []
        for at in places:
            low, middle, high, _ = _NODE.unpack_from(page, at)
            result.append(low | middle << 16 | high << 32)
        return result

    def _leaf(self, number: int) -> list[_Node]:
        """The nodes of a leaf. They lie one behind the other, up to the page's end."""
        page, begin, places = self._places_in(number, _LEAF)
        result, spans, base = [], [], number * self._pages.size
        for at in places:
            low, high, flags, length = _NODE.unpack_from(page, at)
            size, value = low | high << 16, at + _NODE.size + length
            if flags not in (0, _LARGE) or not length:
                what = f"a node with flags {flags:#x} and a key of {length} bytes is no record"
                raise self._pages.bad(number, f"{what}; databases within one are not read")
            end, place = value + (8 if flags else size), base + (value if size else at)  # never at a page's end
            if flags:
                place = self._first_page(number, page[value:end], size) * self._pages.size
            spans.append((at, end + end % 2))
            result.append((base + at, page[at + _NODE.size : value], place, size))
        for at, end in sorted(spans):
            if at != begin:
                raise self._pages.bad(number, f"a node begins at byte {at}; expected {begin}")
            begin = end
        if begin != self._pages.size:
            raise self._pages.bad(number, f"its nodes end at byte {begin}")
        return result

    def _first_page(self, leaf: int, raw: bytes, size: int) -> int:
        result = int.from_bytes(raw, "little")
        if not 2 <= result <= self._pages.last + 1 - self._pages.own(size):
            raise self._pages.bad(
                leaf, f"a value of {size} bytes is in page {result}; the last one is {self._pages.last}"
            )
        return result

    def _places_in(self, number: int, kind: int) -> tuple[bytes, int, tuple[int, ...]]:
        """A page of a tree, where its nodes begin, and the place of each."""
        page = self._pages.read(number, self._pages.size)
        own, _, flags, end, begin = HEAD.unpack_from(page)
        if (own, flags) != (number, kind):
            raise self._pages.bad(number, f"a header of page {own} with flags {flags:#x}; expected {kind:#x}")
        if not HEAD.size < end <= begin <= len(page) or end % 2:
            raise self._pages.bad(number, f"a list of nodes up to byte {end}, and nodes from byte {begin} on")
        places = struct.unpack_from(f"<{(end - HEAD.size) // 2}H", page, HEAD.size)
        if min(places) < begin or max(places) > len(page) - _NODE.size:
            raise self._pages.bad(number, f"a node at byte {max(places)}, and they begin at {begin}")
        return page, begin, places
