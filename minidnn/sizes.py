"""Bytes as people write and read them: "12GB" is decimal, "12GiB" binary. Printed sizes are always binary."""

from __future__ import annotations

import re

_DECIMAL = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?)(I?)B?\s*", re.IGNORECASE)


def parse(text: str | int) -> int:
    """The bytes in "12GB" (12·10⁹), "12GiB" (12·2³⁰) or a plain number. Raises ValueError for any other text."""
    if isinstance(text, int) and not isinstance(text, bool):
        number, unit, binary = float(text), "", ""
    else:
        result = _SIZE.fullmatch(str(text))
        if not result or (result[3] and not result[2]):
            raise ValueError(f"{text!r} is not a size; expected a number of bytes, 512MB, 12GB or 12GiB")
        number, unit, binary = float(result[1]), result[2].upper(), result[3]
    asked = number * (_BINARY if binary else _DECIMAL)[unit]
    if asked >= 2**63:
        raise ValueError(f"{str(text)[:40]!r} is not a size: it must be less than 2^63 bytes")
    nbytes = int(asked)
    if nbytes <= 0:
        raise ValueError(f"{text!r} is not a size: it must be at least one byte")
    return nbytes


def text(nbytes: float) -> str:
    """A size for people: three figures and a binary unit, "5.10 GiB"; exact below 1 KiB."""
    if abs(nbytes) < 1024:
        return f"{int(nbytes)} B"
    value, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 999.5:  # 999.6 KiB would print as four figures
            break
        value, unit = value / 1024, larger
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f} {unit}"


def exact(nbytes: int) -> str:
    """A size as a person would write it, which `parse` reads as just so many bytes: "2.5MiB", "12GB", "2876556544"."""
    result = {}
    for end, table in (("iB", _BINARY), ("B", _DECIMAL)):
        for unit, scale in reversed(table.items()):
            number = f"{nbytes / scale:.3f}".rstrip("0").rstrip(".")
            if nbytes >= scale > 1 and len(number) <= 5 and float(number) * scale == nbytes:
                result[number + unit + end] = len(number)
    return min(result, key=result.__getitem__, default=str(nbytes))
