"""YAML of any form: read or refused with its place; its values are the same after they were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from minidnn.schema import InvalidFile, dump, parse, read
from tests.fuzz.kind import Kind, readable, same, strictly
from tests.fuzz.pieces import BORDERS, PIECES, RAWS, TEXTS, altered, damaged, emitted, encoded, pick

FILE = "some.yaml"
WORDS = [emitted(value) for value in (*BORDERS, *TEXTS, *RAWS)]
MARKS = [
    "\n",
    "\n  ",
    "\n    ",
    " ",
    ": ",
    "- ",
    "? ",
    ", ",
    "[",
    "]",
    "{",
    "}",
    "#",
    "|\n  ",
    ">-\n  ",
    "'",
    '"',
    "&a ",
    "*a",
    "<<: ",
]
BOMBS = ["a: &a [1, 1]\n" + "".join(f"b{k}: &a [{', '.join(['*a'] * wide)}]\n" for k in range(9)) for wide in (2, 9)]
BOMBS += ["a: &a {k: 1}\n" + "".join(f"b{k}: &a {{<<: [{', '.join(['*a'] * 9)}]}}\n" for k in range(9))]
BOMBS += ["a: " + opening * 5000 for opening in "[{'\"-?&*!|>%@`#"] + [
    "- " * 3000,
    "a:\n" + "".join(" " * k + "a:\n" for k in range(1500)),
]

keys = st.sampled_from([*TEXTS, "a", "b", "layer", "name"])
leaves = st.one_of(
    st.sampled_from([b for b in BORDERS if b == b]), st.sampled_from(TEXTS), st.booleans(), st.none(), st.text()
)
trees = st.recursive(leaves, lambda t: st.lists(t, max_size=4) | st.dictionaries(keys, t, max_size=4), max_leaves=12)


@st.composite
def files(draw: Any) -> bytes:
    how = pick(draw, ["tree", "altered", "words", "words", "damaged", "bomb"])
    if how == "words":
        return encoded("".join(draw(st.lists(st.sampled_from(WORDS + MARKS * 4), max_size=30))))
    if how == "bomb":
        data = encoded(pick(draw, BOMBS))
        return draw(damaged(data, PIECES, 1)) if draw(st.booleans()) else data
    tree = draw(st.dictionaries(keys, trees, max_size=5))
    if how == "altered":
        tree = draw(altered(tree, TEXTS))
    data = encoded(emitted(tree) + "\n")
    return draw(damaged(data, PIECES)) if how == "damaged" else data


def check(data: bytes, folder: Path) -> bool:
    path = folder / FILE
    path.write_bytes(data)
    try:
        with strictly():
            document = read(path)
            document.check()
    except InvalidFile as error:
        for line in error.errors[:100]:
            readable(line, FILE)
        return False
    if isinstance(document.data, dict):
        with strictly():
            same("the values and their YAML", parse(dump(document.data), "again.yaml").data, document.data)
    return True


KIND = Kind("yaml", files(), check, 80)
