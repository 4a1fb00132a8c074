"""Texts as windows of tokens, for nets that foretell the next one: a window's labels are the tokens behind its own.

The windows of a file follow each other without overlap, and the last token of one is the first of the next. So each
token but the first is foretold once an epoch. The last tenth of the windows is the test set. A file is mapped: only
what is read is in memory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from minidnn.data.dataset import DataError, Source
from minidnn.data.random import below

MOST = 2**24  # tokens: samples travel as float32, which has all whole numbers below this
TESTED = 10  # of so many windows, the last one is for the test
TYPES = {"uint8": "<u1", "uint16": "<u2", "uint32": "<u4"}


def _number(text: str) -> bool:
    """Whether a text is a whole number from 1 to 2^24."""
    return text.isdecimal() and len(text) <= len(str(MOST)) and 1 <= int(text) <= MOST


@dataclass(frozen=True)
class _Windowed(Source):
    """A source of windows of `length` tokens, whose labels are as many."""

    ids = True

    length: int

    def sample_shape(self):
        return (self.length,)

    def label_shape(self):
        return (self.length,) if self.length > 1 else ()


@dataclass(frozen=True)
class Tokens(_Windowed):
    """`tokens:FILE:length=1024`: ids of tokens, one behind the other, as little-endian uint16, or with `:type=uint32`
    as such. A window has `length` of them."""

    form, splits = "tokens:FILE:length=1024", True
    kinds: ClassVar[tuple[str, ...]] = ("uint16", "uint32")

    path: str
    type: str

    @classmethod
    def parse(cls, text, split):
        path, *settings = text.split(":length=")
        if not path or len(settings) != 1:
            raise DataError(f"expected {cls.form}, where the length is that of a window, in tokens")
        length, _, kind = settings[0].partition(":type=")
        if not _number(length):
            raise DataError(f"length={length!r}: expected a whole number of tokens, from 1 to 2^24")
        if (kind := kind or cls.kinds[0]) not in cls.kinds:
            raise DataError(f"type={kind!r}: expected {' or '.join(cls.kinds)}")
        return cls(split, int(length), path, kind)

    def open(self):
        dtype = np.dtype(TYPES[self.type])
        try:
            size = os.path.getsize(self.path)
            if size % dtype.itemsize:
                raise DataError(f"{self.path}: its {size} bytes are not a whole number of tokens of type {self.type}")
            ids = np.memmap(self.path, dtype, "r") if size else np.empty(0, dtype)
        except OSError as error:
            raise DataError(f"{self.path}: {error.strerror or error}") from error
        count = (len(ids) - 1) // self.length
        tested = -(-count // TESTED)
        if count < 2:
            raise DataError(
                f"{self.path}: {len(ids)} tokens make {max(0, count)} windows of {self.length} and the next token; "
                f"expected at least 2, one of them for the test: {2 * self.length + 1} tokens"
            )
        first, count = (count - tested, tested) if self.split == "test" else (0, count - tested)
        return Windows(f"{self.path} ({self.split})", ids, self.length, first, count)


@dataclass(frozen=True)
class Text(Tokens):
    """`text:FILE:length=256`: the bytes of a file, of which there are 256 kinds."""

    form = "text:FILE:length=256"
    kinds = ("uint8",)


@dataclass(frozen=True)
class MadeUpTokens(_Windowed):
    """`synthetic_tokens:1024`, with classes= and count= after further colons: each token is mostly a function of the
    one before, so that a net can learn it."""

    form, made_up = "synthetic_tokens:1024:classes=50257", True

    classes: int
    count: int

    @classmethod
    def parse(cls, text, split):
        length, *settings = text.split(":")
        values = {"length": length, "classes": "50257", "count": "1024"}
        for setting in settings:
            name, _, values[name] = setting.partition("=")
        wrong = next((f"{k}={v}" for k, v in values.items() if not _number(v)), None)
        if wrong or len(values) > 3:
            raise DataError(f"{wrong or text!r}: expected {cls.form}, with numbers from 1 to 2^24")
        return cls(split, **{name: int(value) for name, value in values.items()})

    def open(self):
        return Chains(self.length, self.classes, self.count, MOST if self.split == "test" else 0)


@dataclass(frozen=True, eq=False)
class Windows:
    """`count` windows of `length` tokens, and the one behind each; the first begins at token first * length."""

    name: str
    ids: np.ndarray
    length: int
    first: int
    count: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)

    def highest(self, ignored: int | None = None) -> int:
        return -1

    def __len__(self) -> int:
        return self.count

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        begin = (np.asarray(indices, np.int64) + self.first) * self.length
        found = self.ids[begin[:, None] + np.arange(self.length + 1)].astype(np.int64)
        if found.max() >= MOST:
            raise DataError(f"{self.name}: token {found.max()} is not an id: expected numbers below 2^24; see type=")
        return _parted(found)


@dataclass(frozen=True)
class Chains:
    """Made-up tokens: the next one is 5 times the last one plus 1, modulo `classes`; of 8, one is any."""

    length: int
    classes: int
    count: int
    start: int  # the index of the first; test and training have different ones

    @property
    def name(self) -> str:
        return f"synthetic windows of {self.length} tokens in {self.classes} classes"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)

    def highest(self, ignored: int | None = None) -> int:
        return self.classes - 1 if ignored != self.classes - 1 else self.classes - 2

    def __len__(self) -> int:
        return self.count

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        numbers = (np.asarray(indices, np.int64) + self.start)[:, None] * (self.length + 1) + np.arange(self.length + 1)
        any_one, chance = below(1, numbers, 0, self.classes), below(1, numbers, 1, 8)
        chance[:, 0] = 0
        found = any_one.astype(np.int64)
        for i in range(1, self.length + 1):
            follows = (5 * found[:, i - 1] + 1) % self.classes
            found[:, i] = np.where(chance[:, i] == 0, found[:, i], follows)
        return _parted(found)


def _parted(windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, those behind them), int32, of windows (n, length + 1)."""
    windows = windows.astype(np.int32)
    labels = windows[:, 1:]
    return windows[:, :-1], labels[:, 0] if labels.shape[1] == 1 else labels
