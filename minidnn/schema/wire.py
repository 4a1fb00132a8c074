"""Protobuf's binary format, by the table of the schema: read as plain values, and written.

Reading takes a function that gives bytes, and reads no long array: a Span says where its numbers lie. So a file of
weights is never in memory as a whole, which protobuf's own library cannot do. A field that the table lacks gets the
name `#<number>`, so that the checks refuse it as they refuse an unknown name.

Files are not trusted: no more than FIELDS fields are read. Only known messages are entered, and none contains itself,
so no file is nested deeply.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel

from minidnn.schema.document import InvalidFile
from minidnn.schema.table import FieldType, fields, numbered

FIELDS = 1_000_000  # ResNet-152 has 20,000
LARGEST = 2**31 - 1  # bytes of a message, for protobuf
VARINT, EIGHT, LENGTH, FOUR = 0, 1, 2, 5
_FIXED = {EIGHT: 8, FOUR: 4}


@dataclass(frozen=True)
class Span:
    """A long array's bytes, or part of them, within a file."""

    at: int
    nbytes: int


class Reader:
    """Reads messages from the bytes that `near(at, size)` gives."""

    def __init__(self, near: Callable[[int, int], bytes], size: int, name: str) -> None:
        self._near, self._size, self._name = near, size, name
        self._left = FIELDS
        self._what = "message"

    def message(self, model: type[BaseModel]) -> dict[str, Any]:
        """The plain values of the whole file. Raises InvalidFile if it is no such message."""
        self._what = model.__name__
        return self._message(model, 0, self._size)

    def _bad(self, what: str) -> InvalidFile:
        return InvalidFile([f"{self._name}: truncated, or not a {self._what} ({self._size} bytes): {what}"])

    def _message(self, model: type[BaseModel] | None, at: int, end: int) -> dict[str, Any]:
        known = numbered(model) if model else {}
        result: dict[str, Any] = {}
        while at < end:
            self._count()
            tag, begin = self._varint(at, end)
            number, wire = tag >> 3, tag & 7
            field = known.get(number)
            name = field.name if field else f"#{number}"
            if wire == VARINT:
                value, at = self._varint(begin, end)
                given = [self._integer(field, value)]
            elif wire in _FIXED:
                at = begin + _FIXED[wire]
                given = self._fixed(field, wire, begin, at) if at <= end else []
            elif wire == LENGTH:
                length, begin = self._varint(begin, end)
                at = begin + length
                given = self._sized(field, begin, at) if at <= end else []
            else:
                raise self._bad(f"at byte {at}, {name} has the wire type {wire}")
            if at > end:
                raise self._bad(f"at byte {begin}, {name} goes on for {at - end} bytes after its message's end")
            _put(result, name, field, given)
        return result

    def _count(self, more: int = 1) -> None:
        self._left -= more
        if self._left < 0:
            raise self._bad(f"it has more than {FIELDS} fields and numbers outside of arrays")

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """(the number that begins there, the place after it)."""
        value = 0
        for i, byte in enumerate(self._near(at, min(10, end - at))):
            value |= (byte & 127) << (7 * i)
            if byte < 128:
                return value & (2**64 - 1), at + i + 1
        raise self._bad(f"at byte {at}, a number does not end")

    def _integer(self, field: FieldType | None, value: int) -> Any:
        if field and field.itemsize:
            raise self._bad(f"{field.name} is given as one number, not as an array")
        signed = value - 2**64 if value >= 2**63 else value
        if field and field.kind == "enum":
            index = signed - field.first
            return field.words[index] if 0 <= index < len(field.words) else signed
        return bool(value) if field and field.kind == "bool" else signed

    def _fixed(self, field: FieldType | None, wire: int, begin: int, end: int) -> list[Any]:
        if field and field.itemsize:
            return [Span(begin, end - begin)]
        raw = self._near(begin, end - begin)
        return [_shortest(raw)] if wire == FOUR else [struct.unpack("<d", raw)[0]]

    def _sized(self, field: FieldType | None, begin: int, end: int) -> list[Any]:
        """The values of a field that says its length: a message, a text, or several numbers, packed."""
        if field is None:
            return [None]
        if field.kind == "message":
            return [self._message(field.model, begin, end)]
        if field.itemsize:
            return [Span(begin, end - begin)]
        if field.kind == "string":
            try:
                return [self._near(begin, end - begin).decode("utf-8")]
            except UnicodeDecodeError:
                raise self._bad(f"at byte {begin}, {field.name} is not UTF-8 text") from None
        if field.kind == "float":
            raw = self._near(begin, end - begin)
            if len(raw) % 4:
                raise self._bad(f"at byte {begin}, {field.name} has {len(raw)} bytes, which are not whole numbers")
            self._count(len(raw) // 4)
            return [_shortest(raw[i : i + 4]) for i in range(0, len(raw), 4)]
        result = []
        while begin < end:
            self._count()
            value, begin = self._varint(begin, end)
            result.append(self._integer(field, value))
        return result


def _put(result: dict[str, Any], name: str, field: FieldType | None, values: list[Any]) -> None:
    """Add values to a message: repeated ones to a list; of others the last one counts, and messages are merged."""
    if field and (field.repeated or field.itemsize):
        result.setdefault(name, []).extend(values)
    elif values:
        before, last = result.get(name), values[-1]
        result[name] = {**before, **last} if isinstance(before, dict) and isinstance(last, dict) else last


def _shortest(raw: bytes) -> float:
    """A float32 as the number that a person would write: 0.1, not 0.10000000149011612."""
    return float(str(np.frombuffer(raw, "<f4")[0]))


# -- writing -------------------------------------------------------------------------------------------------


def message_bytes(message: BaseModel) -> bytes:
    """The bytes of a message without long arrays: its given fields, in the order of their numbers."""
    known = sorted((f for f in fields(type(message)).values() if f.number is not None), key=lambda f: f.number or 0)
    result = b""
    for field in known:
        value = getattr(message, field.name)
        if field.name not in message.model_fields_set or value is None:
            continue
        for item in value if field.repeated else (value,):
            result += _one(field, item)
    return result


def _one(field: FieldType, value: Any) -> bytes:
    assert field.number is not None
    if isinstance(value, BaseModel):
        return sized(field.number, message_bytes(value))
    if field.kind == "string":
        return sized(field.number, str(value).encode("utf-8", "surrogatepass"))
    if field.kind == "float":
        with np.errstate(over="ignore"):
            return varint(field.number << 3 | FOUR) + np.float32(value).tobytes()
    if field.kind == "enum" and value in field.words:
        value = field.words.index(value) + field.first
    return varint(field.number << 3 | VARINT) + varint(int(value))


def sized(number: int, content: bytes) -> bytes:
    """A field that says its length."""
    return head(number, len(content)) + content


def head(number: int, size: int) -> bytes:
    """The begin of a field of so many bytes, which follow."""
    return varint(number << 3 | LENGTH) + varint(size)


def varint(value: int) -> bytes:
    """A whole number in protobuf's form: seven bits a byte; negative ones as of 64 bits."""
    value &= 2**64 - 1
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    return bytes([*result, value])
