"""Caffe's text format: read or refused with its place; an accepted net is the same after it was written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from pydantic import BaseModel

from minidnn.errors import BadInput
from minidnn.nets.net import Net
from minidnn.schema import InvalidFile, NetParameter
from minidnn.schema.table import fields
from tests.fuzz.kind import Fault, Kind, command, readable, same, strictly
from tests.fuzz.kinds.net import rewritten
from tests.fuzz.nets import FIELDS, TYPES, nets
from tests.fuzz.pieces import BORDERS, TEXTS, Raw, altered, damaged, encoded, pick

FILE = "net.prototxt"
MARKS = [*"{}<>[]:;,-#\"'\\ \n", "\\u00e9", "\\777", "/*", "[a.b]"]
WORDS = ["layer", "name", "top", "type", "input_dim", "layers", "true", "inf", "nan", "AVE", "017", "1e9f", "1."]
PIECES = [*(encoded(piece) for piece in (*MARKS, *WORDS)), b"\xef\xbb\xbf", b"\xff", b"\0", b"\r\n"]
BOMBS = ["a {" * 5000, "a: [" * 5000, "a: " + "9" * 5000, "a: '" + "\\1" * 5000, "#" * 5000, "a " * 5000]
BOMBS += ["a: 1 " * 3000]


def text(value: Any, model: type[BaseModel] | None = None) -> str:
    """The fields of a message; what has no place in it is written as it is in JSON."""
    if not isinstance(value, dict):
        return emitted(value, False)
    lines = []
    for name, inner in value.items():
        known = fields(model).get(name) if model else None
        for item in inner if isinstance(inner, list) else [inner]:
            if isinstance(item, dict):
                lines.append(f"{name} {{ {text(item, known.model if known else None)} }}")
            else:
                lines.append(f"{name}: {emitted(item, bool(known and known.kind == 'enum'))}")
    return "\n".join(lines)


def emitted(value: Any, word: bool) -> str:
    if isinstance(value, Raw):
        return value.text
    return str(value) if word else json.dumps(value, default=str, ensure_ascii=False)


@st.composite
def files(draw: Any) -> bytes:
    how = pick(draw, ["right", "altered", "altered", "damaged", "damaged", "words", "bomb"])
    if how == "words":
        words = [*WORDS, *MARKS, *(json.dumps(text) for text in TEXTS), *map(repr, BORDERS)]
        return encoded(" ".join(draw(st.lists(st.sampled_from(words), max_size=30))))
    if how == "bomb":
        return encoded(pick(draw, BOMBS))
    tree = draw(nets(4))
    if how == "altered":
        tree = draw(altered(tree, (*FIELDS, *TYPES)))
    data = encoded(text(tree, NetParameter))
    return draw(damaged(data, PIECES)) if how == "damaged" else data


def check(data: bytes, folder: Path) -> bool:
    path = folder / FILE
    path.write_bytes(data)
    ended = command("convert", FILE, "again.yaml")
    try:
        with strictly():
            net = Net.from_file(path)
    except BadInput as error:  # its text, or what it says
        for line in error.errors[:100] if isinstance(error, InvalidFile) else [str(error)]:
            readable(line, FILE)
        if not ended.code and "the net" in ended.out:
            raise Fault("the command accepts a net that Python refuses") from None
        return not ended.code
    if ended.code:
        raise Fault(f"the command refuses a net that Python accepts: {ended.err[:500]}")
    same("the net and its prototxt", Net.from_text(net.to_prototxt(), source=FILE).parameter, net.parameter)
    rewritten(net)
    return True


KIND = Kind("prototxt", files(), check, 30)
