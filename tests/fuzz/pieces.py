"""Pieces of hostile files: numbers at borders, strange texts, values in wrong places, bytes that went astray."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

BORDERS: list[Any] = [
    0, -1, 1, 2, 3, 7, 8, 31, 32, 33, 255, 256, 65535, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**62,
    2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 0.0, -0.0, 0.5, 1.5, 1e-45, 1e-8, 1e38, 1e39, 1e308, -1e308,
    float("inf"), float("-inf"), float("nan"),
]  # fmt: skip
TEXTS = [
    "", " ", "\n", "a\nb", "\t", "\r", "\x1b[2J", "\x1b]0;PWNED\x07", "\x07", "\x00", "\x7f", "\x85", "\u2028",
    "\u202e", "\ufeff", "\xa0", "\ud800", "\udcff", "\U0010ffff", "\ufffe", "\xe9", "\u540d\u524d", "a" * 300,
    "../x", "/", ".", "..", "~", "conv1/w", "a:b", "#", "yes", "on", "null", "~", "1e5", "0x10", "1_000", "{", "[",
    "]", "- a", "? a", "<<", "*a", "%s", "%n", "{0}", "{title}", "<script>alert(1)</script>", "[bold]", "[/]", '"',
    "'", '"""', "\\", "\\n", "import os", "class", "None", "self", "L", "minidnn", "batch", "__init__", "0", "1GiB",
    "12GB", "-1", "nan", "inf", "\N{MICRO SIGN}",
]  # fmt: skip


@dataclass(frozen=True)
class Raw:
    """Text that goes into a YAML file as it is: an alias, a tag, an anchor."""

    text: str


RAWS = [
    Raw(text)
    for text in (
        "*a", "&a 3", "&a [*a]", "&b {k: *b}", "!!int foo", "!!int ''", "!!float x", "!!str 3", "!!binary aGk=",
        "!!set {a}", "!!python/object:os.system x", "!mine {a: 1}", "!!null ''", "!!bool maybe", "0x_", "0o17",
        "1:30", "2001-01-01", "[[[[[[[[]]]]]]]]", "{a: {a: {a: {a: {}}}}}", "'", '"', "|", ">", "@", "`", "%", "\t",
        "? [a]\n: b", "<<: {a: 1}", "{<<: *a}", "{<<: [*a, *a]}", '"\\UFFFFFFFF"', '"\\uD800"', '"\\x1b[2J"',
        "{a: 1, a: 2}", "{[a]: 1}", "&a", "*",
    )
]  # fmt: skip

Draw = Callable[[st.SearchStrategy[Any]], Any]


@lru_cache
def _below(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


def pick(draw: Draw, choices: Sequence[Any]) -> Any:
    """One of these. As `draw(st.sampled_from(choices))`, which takes five times as long to make the strategy."""
    return choices[draw(_below(len(choices)))]


odd = st.one_of(
    st.sampled_from(BORDERS),
    st.sampled_from(TEXTS),
    st.sampled_from([None, True, False, [], {}, [[]], {"a": 1}, [1, 2, 3], [None]]),
    st.sampled_from(RAWS),
    st.integers(),
    st.text(max_size=8),
)


def emitted(value: Any) -> str:
    """A value as YAML on one line; texts that need quotes have JSON's."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{emitted(k)}: {emitted(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(emitted, value)) + "]"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return ".nan" if value != value else ".inf" if value > 0 else "-.inf"
    if isinstance(value, str) and value.isascii() and value.isidentifier():
        return value
    return json.dumps(value) if isinstance(value, str | bool) or value is None else repr(value)


def document(tree: Any, listed: str = "layer") -> str:
    """A mapping as a YAML file: a field a line, and of this list an entry a line."""
    if not isinstance(tree, dict):
        return emitted(tree) + "\n"
    lines = []
    for key, value in tree.items():
        if key == listed and isinstance(value, list) and value:
            lines += [f"{key}:", *(f"- {emitted(item)}" for item in value)]
        else:
            lines.append(f"{emitted(key)}: {emitted(value)}")
    return "\n".join(lines) + "\n"


def encoded(text: str) -> bytes:
    """A file's bytes; half a character, which no file can hold, is spelt as some programs do."""
    return text.encode("utf-8", "surrogatepass")


# ---- changes


def _places(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    if isinstance(tree, dict):
        for key, value in tree.items():
            found += _places(value, (*at, key))
    elif isinstance(tree, list):
        for i, value in enumerate(tree):
            found += _places(value, (*at, i))
    return found


@st.composite
def altered(draw: Any, tree: Any, fields: Sequence[str] = (), most: int = 3) -> Any:
    """A tree of dicts and lists with one change or more: a value, a name, something gone, twice, or elsewhere.

    fields: names of fields that may be added"""
    tree = _copy(tree)
    for _ in range(draw(st.integers(1, most))):
        places = _places(tree)
        if not places:
            return _copy(draw(odd))
        *way, last = pick(draw, places)
        owner = tree
        for part in way:
            owner = owner[part]
        how = pick(draw, ["odd", "odd", "near", "gone", "twice", "other", "name", "more", "deep"])
        value = owner[last]
        if how == "near" and isinstance(value, int | float) and not isinstance(value, bool):
            owner[last] = pick(draw, [value + 1, value - 1, value * 2, -value, value / 2, value * 1000])
        elif how == "near" and isinstance(value, str):
            owner[last] = pick(draw, [value + "x", value[:-1], value.upper(), value + "\x1b[2J", [value]])
        elif how == "gone":
            del owner[last]
        elif how == "twice" and isinstance(owner, list):
            owner.insert(draw(st.integers(0, len(owner))), _copy(value))
        elif how == "other":
            other: Any = tree
            for part in pick(draw, places):
                other = other[part]
            owner[last] = _copy(other)
        elif how == "name" and isinstance(owner, dict):
            name = pick(draw, [*fields, *TEXTS])
            owner[name] = owner.pop(last)
        elif how == "more" and isinstance(value, dict) and fields:
            value[pick(draw, fields)] = _copy(draw(odd))
        elif how == "deep":
            deep = pick(draw, [1, 2, 50, 2000])
            for _ in range(deep if deep < 100 else 0):
                value = pick(draw, [[value], {"a": value}]) if deep < 3 else [value]
            owner[last] = value if deep < 100 else Raw("[" * deep + "]" * deep)
        else:
            owner[last] = _copy(draw(odd))  # else a later change would change all of these
    return tree


def _copy(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _copy(value) for key, value in tree.items()}
    return [_copy(value) for value in tree] if isinstance(tree, list) else tree


@st.composite
def damaged(draw: Any, data: bytes, pieces: Sequence[bytes] = (), most: int = 3) -> bytes:
    """These bytes cut, flipped, doubled, moved, overwritten or with others between."""
    for _ in range(draw(st.integers(1, most))):
        if not data:
            return draw(st.binary(max_size=16))
        at = draw(st.integers(0, len(data) - 1))
        upto = min(len(data), at + pick(draw, [1, 2, 4, 8, 16, 64, 1000]))
        how = pick(draw, ["cut", "flip", "set", "double", "gone", "piece", "move", "zero", "front"])
        if how == "cut":
            data = data[:at]
        elif how == "flip":
            data = data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :]
        elif how == "set":
            data = data[:at] + draw(st.binary(min_size=1, max_size=4)) + data[at + 1 :]
        elif how == "double":
            data = data[:upto] + data[at:upto] * pick(draw, [1, 2, 30]) + data[upto:]
        elif how == "gone":
            data = data[:at] + data[upto:]
        elif how == "piece" and pieces:
            data = data[:at] + pick(draw, list(pieces)) + data[at:]
        elif how == "move":
            to = draw(st.integers(0, len(data)))
            rest = data[:at] + data[upto:]
            data = rest[:to] + data[at:upto] + rest[to:]
        elif how == "zero":
            data = data[:at] + pick(draw, [b"\0", b"\xff"]) * (upto - at) + data[upto:]
        elif how == "front":
            data = data[at:]
    return data


PIECES = [encoded(raw.text) for raw in RAWS] + [
    b"\xef\xbb\xbf",
    b"\xff",
    b"\r\n",
    b"\n\t",
    b"---\n",
    b"...\n",
    b"%YAML 1.1\n",
]
