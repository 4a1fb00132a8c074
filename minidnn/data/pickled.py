"""Python's pickles of dictionaries, lists, numbers, texts and NumPy's arrays: what files of CIFAR hold, and no more.

A pickle is a program for a machine with a stack. This machine knows the instructions that such values need, of all
protocols, and calls nothing: what a pickle may name stands in a table. Each length is compared with what is left of the
file, no text is encoded twice, and nothing calls itself, however deeply lists are nested. So time and memory are linear
in the file's size.
"""

from __future__ import annotations

import codecs
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from minidnn.data.dataset import DataError

_CODES = {f"{kind}{size}" for kind in "iuf" for size in (1, 2, 4, 8)} - {"f1"}  # of NumPy's types
_LATIN = "latin1"  # in which Python 3 writes bytes for Python 2
_LINE = 24  # bytes of a number that is written in decimal digits, at most
_SHOWN = 80  # characters of a name in an error, at most
_NAMES = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): "array" for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): "buffer" for core in ("core", "_core")},
    **{(module, "bytes"): "empty" for module in ("builtins", "__builtin__")},
    ("numpy", "dtype"): "type", ("numpy", "ndarray"): "class", ("_codecs", "encode"): "encoded",
}  # fmt: skip
_CONSTANTS = {b"N": None, b"\x88": True, b"\x89": False}
_EMPTY: dict[bytes, Callable[[], Any]] = {b"}": dict, b"]": list, b")": tuple}
_NUMBERS = {b"K": "<B", b"M": "<H", b"J": "<i", b"G": ">d"}
_SIZED = {  # instructions with a length, how it is written, and what follows
    b"U": ("<B", bytes), b"T": ("<I", bytes), b"C": ("<B", bytes), b"B": ("<I", bytes), b"\x8e": ("<Q", bytes),
    b"\x96": ("<Q", bytes), b"\x8c": ("<B", str), b"X": ("<I", str), b"\x8d": ("<Q", str),
    b"\x8a": ("<B", int), b"\x8b": ("<I", int),
}  # fmt: skip
_PUT = {b"q": "<B", b"r": "<I"}
_GET = {b"h": "<B", b"j": "<I"}
_SKIPPED = {b"\x80": "<B", b"\x95": "<Q"}  # the protocol, and how far one may read ahead
_TUPLES = {b"\x85": 1, b"\x86": 2, b"\x87": 3}


class InvalidPickle(DataError):
    """It is torn, or holds something else; the message says where."""


@dataclass
class _Name:
    """A function or a class of Python: its place in the table."""

    what: str


@dataclass
class _Type:
    """A type of NumPy's."""

    code: str
    order: Literal["<", ">", "|", "="] = "="


@dataclass
class _Array:
    """An array, which a pickle makes at first, and gives its values later."""

    values: np.ndarray | None = None


def load(data: bytes) -> Any:
    """The value of a pickle; `array` gives the arrays in it. A text of Python 2 is bytes. Raises InvalidPickle."""
    return _Machine(data).run()


def array(value: Any) -> np.ndarray | None:
    """The array that is a value in a pickle, or that a list of integers is; None if it is neither."""
    if isinstance(value, _Array):
        return value.values
    if isinstance(value, list) and all(type(item) is int for item in value):
        return np.array(value)
    return None


class _Machine:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []  # the stacks below the marks
        self._memo: dict[int, Any] = {}
        self._left = len(data)  # characters that may still be encoded

    def run(self) -> Any:
        while (code := self._take(1)) != b".":
            begin = self._at - 1
            try:
                self._do(code)
            except ValueError as error:  # InvalidPickle, or a text or number that Python cannot read
                raise InvalidPickle(f"at byte {begin}: {error}") from error
        return self._pop()

    def _do(self, code: bytes) -> None:
        if code in _CONSTANTS:
            self._push(_CONSTANTS[code])
        elif code in _NUMBERS:
            self._push(self._number(_NUMBERS[code]))
        elif code in _SIZED:
            self._push(self._sized(*_SIZED[code]))
        elif code in _PUT:
            self._memo[self._number(_PUT[code])] = self._top()
        elif code in _GET:
            self._get(self._number(_GET[code]))
        elif code in _EMPTY:
            self._push(_EMPTY[code]())
        elif code in _TUPLES:
            self._push(tuple([self._pop() for _ in range(_TUPLES[code])][::-1]))
        elif code in _SKIPPED:
            self._number(_SKIPPED[code])
        elif code in _OTHERS:
            _OTHERS[code](self)
        else:
            raise InvalidPickle(f"instruction {code!r}, which no file of CIFAR has")

    # ---- bytes

    def _take(self, size: int) -> bytes:
        left = len(self._data) - self._at
        if size > left:
            raise InvalidPickle(f"truncated: {size} bytes should follow, and {left} do")
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _sized(self, form: str, kind: type) -> Any:
        size = self._number(form)
        if kind is int and size > 8:
            raise InvalidPickle(f"a number of {size} bytes")
        raw = self._take(size)
        if kind is int:
            return int.from_bytes(raw, "little", signed=True)
        return raw.decode("utf-8", "surrogatepass") if kind is str else raw

    def _line(self, most: int | None = None) -> bytes:
        end = self._data.find(b"\n", self._at, None if most is None else self._at + most)
        if end < 0:
            raise InvalidPickle("a line that does not end")
        return self._take(end + 1 - self._at)[:-1]

    def _digits(self) -> None:
        text = self._line(_LINE)
        self._push({b"00": False, b"01": True}[text] if text in (b"00", b"01") else int(text.rstrip(b"L")))

    def _quoted(self) -> None:
        text = self._line()
        if len(text) < 2 or text[:1] not in b"'\"" or text[:1] != text[-1:]:
            raise InvalidPickle("a text without quotation marks")
        self._push(codecs.escape_decode(text[1:-1])[0])

    def _text(self) -> None:
        self._push(self._line().decode("raw-unicode-escape"))

    # ---- the stack

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _top(self) -> Any:
        if not self._stack:
            raise InvalidPickle("an instruction without its values")
        return self._stack[-1]

    def _pop(self) -> Any:
        self._top()
        return self._stack.pop()

    def _mark(self) -> None:
        self._marks.append(self._stack)
        self._stack = []

    def _items(self) -> list[Any]:
        """The values above the last mark, which is removed."""
        if not self._marks:
            raise InvalidPickle("an instruction without its mark")
        result, self._stack = self._stack, self._marks.pop()
        return result

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise InvalidPickle(f"value {index} is not noted")
        self._push(self._memo[index])

    # ---- collections

    def _append(self, items: list[Any]) -> None:
        if not isinstance(self._top(), list):
            raise InvalidPickle("something is added to what is no list")
        self._top().extend(items)

    def _set(self, items: list[Any]) -> None:
        keys, target = items[::2], self._top()
        if type(target) is not dict or len(items) % 2 or not all(isinstance(key, str | bytes) for key in keys):
            raise InvalidPickle("entries that are no names with their values")
        target.update(zip(keys, items[1::2], strict=True))

    def _pairs(self) -> None:
        items = self._items()
        self._push({})
        self._set(items)

    # ---- what has a name

    def _named(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise InvalidPickle("it would make what has no name")
        if (module, name) not in _NAMES:
            raise InvalidPickle(f"it would make {module[:_SHOWN]}.{name[:_SHOWN]}, which no file of CIFAR holds")
        self._push(_Name(_NAMES[module, name]))

    def _call(self) -> None:
        arguments, name = self._pop(), self._pop()
        what = name.what if isinstance(name, _Name) and isinstance(arguments, tuple) else None
        match what, *(arguments if what else ()):
            case "array", _Name("class"), (0,), _:
                result: Any = _Array()
            case "type", str() | bytes() as code, *_:
                result = self._type(code)
            case "buffer", bytes() as raw, _Type() as type_, tuple() as shape, str() as order:
                result = _Array(_values(raw, type_, shape, order))
            case "encoded", str() as text, "latin1":
                result = self._encoded(text)
            case ("empty",):
                result = b""
            case _:
                raise InvalidPickle("a call that no file of CIFAR has")
        self._push(result)

    def _build(self) -> None:
        state, target = self._pop(), self._top()
        match target, state:
            case _Type(), (_, "<" | ">" | "|" | "=" as order, *_):
                target.order = order
            case _Type(), (_, b"<" | b">" | b"|" | b"=" as order, *_):
                target.order = order.decode()
            case _Array(), (_, tuple() as shape, _Type() as type_, bool() | int() as columns, bytes() as raw):
                target.values = _values(raw, type_, shape, "F" if columns else "C")
            case _:
                raise InvalidPickle("values for what has none")

    def _type(self, code: str | bytes) -> _Type:
        word = _word(code)
        if word not in _CODES:
            raise InvalidPickle(f"arrays of {word[:_SHOWN]!r}")
        return _Type(word)

    def _encoded(self, text: str) -> bytes:
        self._left -= len(text)
        if self._left < 0:
            raise InvalidPickle("a text is encoded again and again")
        return text.encode(_LATIN)


_OTHERS: dict[bytes, Callable[[_Machine], object]] = {
    b"(": _Machine._mark,
    b"0": _Machine._pop,
    b"1": _Machine._items,
    b"2": lambda m: m._push(m._top()),
    b"I": _Machine._digits,
    b"L": _Machine._digits,
    b"F": lambda m: m._push(float(m._line(_LINE))),
    b"S": _Machine._quoted,
    b"V": _Machine._text,
    b"p": lambda m: m._memo.update({int(m._line(_LINE)): m._top()}),
    b"g": lambda m: m._get(int(m._line(_LINE))),
    b"\x94": lambda m: m._memo.update({len(m._memo): m._top()}),
    b"t": lambda m: m._push(tuple(m._items())),
    b"l": lambda m: m._push(m._items()),
    b"d": _Machine._pairs,
    b"a": lambda m: m._append([m._pop()]),
    b"e": lambda m: m._append(m._items()),
    b"s": lambda m: m._set([m._pop(), m._pop()][::-1]),
    b"u": lambda m: m._set(m._items()),
    b"c": lambda m: m._named(m._line().decode(), m._line().decode()),
    b"\x93": lambda m: m._named(*[m._pop(), m._pop()][::-1]),
    b"R": _Machine._call,
    b"b": _Machine._build,
}


def _word(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin1")


def _values(raw: bytes, type_: _Type, shape: tuple[Any, ...], order: str) -> np.ndarray:
    """The array of these bytes, which stay where they are. Raises InvalidPickle unless they are as many as it has."""
    dtype = np.dtype(type_.code).newbyteorder(type_.order)
    right = order in ("C", "F") and 0 < len(shape) <= 4 and all(type(n) is int and n > 0 for n in shape)
    if not right or math.prod(shape) * dtype.itemsize != len(raw):
        raise InvalidPickle(f"an array of {len(raw)} bytes, whose shape is another")
    return np.frombuffer(raw, dtype).reshape(shape, order="F" if order == "F" else "C")
