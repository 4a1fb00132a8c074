"""Parses the values of options for argparse: each function raises ArgumentTypeError, with the reason.

Modules that import NumPy or the schema are imported by the functions that need them: help needs none."""

from __future__ import annotations

import argparse
import math

from minidnn import sizes


def size(text: str) -> int:
    """A number of bytes for argparse: 12GB is decimal, 12GiB binary."""
    try:
        return sizes.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def at_least_zero(text: str) -> float:
    if not (number := _number(text)) >= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of at least 0")
    return number


def above_zero(text: str) -> float:
    if not (number := _number(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def _number(text: str) -> float:
    """The finite number that `text` names; NaN if it names none."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def counts(text: str) -> list[int]:
    """Whole numbers of at least 1, separated by commas; "..." goes on as the two before it: 1,2,4,...,64."""
    result: list[int] = []
    words = [word.strip() for word in text.split(",")]
    for i, word in enumerate(words):
        if word != "...":
            result.append(positive(word))
            continue
        if len(result) < 2 or i + 2 != len(words) or result[-1] <= result[-2]:
            raise argparse.ArgumentTypeError(
                f"{text!r}: ... stands between rising numbers and the last one: 1,2,4,...,64"
            )
        last = positive(words[-1])
        if result[-1] % result[-2]:
            step = result[-1] - result[-2]
            result += range(result[-1] + step, last, step)
        else:
            factor = result[-1] // result[-2]
            while result[-1] * factor < last:
                result.append(result[-1] * factor)
    return result


def started(text: str) -> int:
    """A number of ranks, which the launcher knows."""
    raise argparse.ArgumentTypeError(
        f"a launcher starts ranks, and no option does: mpiexec -n {text} minidnn train ... (docs/ranks.md)"
    )


def seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 2^64 - 1")
    return int(text)


def word(text: str) -> str:
    """A name that is not empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a name")
    return text


def names(text: str) -> list[str]:
    """A comma-separated list."""
    result = [name.strip() for name in text.split(",") if name.strip()]
    if not result:
        raise argparse.ArgumentTypeError("expected one name or more, separated by commas")
    return result


def device(text: str) -> str:
    """A device's name for argparse."""
    from minidnn.backends import check_name
    from minidnn.errors import InvalidInput

    try:
        check_name(text)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """A top and its shape: data=64,1,28,28."""
    from minidnn.schema.message import LARGEST

    top, _, numbers = text.rpartition("=")
    parts = numbers.split(",")
    if not top or not all(part.strip().isdecimal() and 1 <= int(part) <= LARGEST for part in parts):
        raise argparse.ArgumentTypeError(f"expected a top and its shape, such as data=64,1,28,28; got {text!r}")
    return top, tuple(map(int, parts))
