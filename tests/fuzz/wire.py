"""Messages of protobuf as trees of fields, changed field by field, and written with lengths that are right again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from minidnn.schema.wire import EIGHT, FOUR, LENGTH, VARINT, sized, varint
from tests.fuzz.pieces import pick

Field = list[Any]  # number, wire type, value: an integer, bytes, or the fields of a message
NUMBERS = [0, 1, 2, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
_DEEP = 6  # messages within messages that are looked into


def parsed(data: bytes, depth: int = 0) -> list[Field] | None:
    """The fields of a message; None if the bytes are none. Bytes that could be a message are taken for one."""
    result: list[Field] = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = _varint(data, at)
        elif wire in (EIGHT, FOUR):
            size = 8 if wire == EIGHT else 4
            value, at = data[at : at + size], at + size
        elif wire == LENGTH:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
            if at <= len(data) and depth < _DEEP and value and (inner := parsed(value, depth + 1)):
                value = inner
        else:
            return None
        if at > len(data) or not 0 < number < 1 << 29:
            return None
        result.append([number, wire, value])
    return result


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 128:
            return value, at
    return 0, len(data) + 1


def written(message: list[Field]) -> bytes:
    return b"".join(map(_field, message))


def _field(field: Field) -> bytes:
    number, wire, value = field
    if wire == LENGTH and not isinstance(value, int):
        return sized(number, value if isinstance(value, bytes) else written(value))
    tag = varint(number << 3 | wire)
    if wire == VARINT:
        return tag + varint(value if isinstance(value, int) else len(value))
    raw = (value % 2**64).to_bytes(8, "little") if isinstance(value, int) else value
    raw = written(raw) if isinstance(raw, list) else raw
    return tag + (
        raw if wire not in (EIGHT, FOUR) else raw[: 8 if wire == EIGHT else 4].ljust(8 if wire == EIGHT else 4, b"\0")
    )


def _messages(message: list[Field]) -> list[list[Field]]:
    inner = [value for _, _, value in message if isinstance(value, list)]
    return [message, *(one for value in inner for one in _messages(value))]


@st.composite
def fields_changed(draw: Any, data: bytes, numbers: Sequence[int] = (), most: int = 3) -> bytes:
    """A message with a field or more gone, doubled, moved, renumbered, of another type, or with another value."""
    message = parsed(data)
    if not message:
        return data
    for _ in range(draw(st.integers(1, most))):
        every = [one for one in _messages(message) if one]
        if not every:
            break
        owner = pick(draw, every)
        index = draw(st.integers(0, len(owner) - 1))
        field = owner[index]
        how = pick(draw, ["gone", "double", "many", "elsewhere", "number", "type", "value", "value", "value", "deep"])
        if how == "gone":
            del owner[index]
        elif how in ("double", "many"):
            owner[index:index] = [list(field)] * (1 if how == "double" else pick(draw, [2, 40]))
        elif how == "elsewhere":
            target = pick(draw, every)
            target.insert(draw(st.integers(0, len(target))), [field[0], field[1], _frozen(field[2])])
        elif how == "number":
            field[0] = pick(draw, [field[0] + 1, max(1, field[0] - 1), *range(1, 9), *numbers, 2**29 - 1])
        elif how == "type":
            field[1] = pick(draw, [VARINT, EIGHT, LENGTH, FOUR, LENGTH, 3, 4, 6, 7])
        elif how == "value":
            field[2] = draw(_value(field[2]))
        else:
            for _ in range(pick(draw, [1, 3, 100, 500])):
                field[2] = sized(field[0], _frozen(field[2]) if not isinstance(field[2], int) else varint(field[2]))
            field[1] = LENGTH
    return written(message)


def _frozen(value: Any) -> Any:
    """A message as bytes, so that a change of it changes no copy."""
    return written(value) if isinstance(value, list) else value


@st.composite
def _value(draw: Any, value: Any) -> Any:
    if isinstance(value, int):
        return pick(draw, [value + 1, max(0, value - 1), value ^ 1 << draw(st.integers(0, 40)), *NUMBERS])
    raw = _frozen(value)
    return pick(draw, [
        b"", raw[:-1], raw + b"\0", raw * 2, raw[: len(raw) // 2], bytes(len(raw)), b"\xff" * len(raw), b"\x1b[2J",
        b"../x", raw[4:],
        raw + bytes(4), varint(pick(draw, NUMBERS)) * pick(draw, [1, 3]),
    ])  # fmt: skip
