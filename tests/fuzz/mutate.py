"""Files of bytes with one bit changed, cut, with other numbers in their fields, or damaged anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.fuzz.pieces import damaged, pick

BORDERS = [0, 1, 2, 3, 7, 8, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1]
Mend = Callable[[bytearray, int], None]  # makes the checksums right again after the byte at an index has changed


class Field(NamedTuple):
    """A number in a file: where it begins, and its width in bytes."""

    at: int
    width: int
    order: Any = "little"


@st.composite
def mutated(
    draw: Any, data: bytes, pieces: Sequence[bytes] = (), fields: Sequence[Field] = (), mend: Mend | None = None
) -> bytes:
    """Half of the cases have one bit changed or are cut, of which samples.py knows most."""
    how = pick(draw, ["bit", "bit", "bit", "cut", "field", "field", "field", "bytes"])
    if how == "bit":
        return draw(flipped(data))
    if how == "cut":
        return data[: draw(st.integers(0, len(data) - 1))]
    if how == "field":
        return draw(renumbered(data, fields, mend))
    return draw(damaged(data, pieces))


@st.composite
def flipped(draw: Any, data: bytes) -> bytes:
    """One bit changed."""
    at = draw(st.integers(0, len(data) - 1))
    return data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]


@st.composite
def renumbered(draw: Any, data: bytes, fields: Sequence[Field] = (), mend: Mend | None = None) -> bytes:
    """One number or two changed: to one near it, to one at a border, or to that of another field. Without `fields` any
    bytes are taken for a number."""
    raw = bytearray(data)
    for _ in range(pick(draw, [1, 1, 2])):
        field = pick(draw, fields) if fields else draw(_anywhere(len(data)))
        at, width, order = field
        value = int.from_bytes(raw[at : at + width], order)
        other = pick(draw, fields) if fields else field
        value = pick(draw, [
            value + 1, value - 1, value * 2, value // 2, value ^ 1 << draw(st.integers(0, 8 * width - 1)),
            int.from_bytes(raw[other.at : other.at + other.width], other.order), pick(draw, BORDERS),
            pick(draw, BORDERS),
        ])  # fmt: skip
        raw[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, order)
        if mend is not None and pick(draw, [True, True, True, False]):
            mend(raw, at)
    return bytes(raw)


@st.composite
def _anywhere(draw: Any, size: int) -> Field:
    width = pick(draw, [1, 2, 4, 8])
    at = draw(st.integers(0, max(0, size - width)))
    return Field(at - at % width if draw(st.booleans()) else at, width, pick(draw, ["little", "little", "big"]))
