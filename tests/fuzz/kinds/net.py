"""Net files: planned by the command; an accepted one is the same net after it was written as YAML and as Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

import minidnn
from minidnn.errors import BadInput
from minidnn.nets.net import Net
from tests.fuzz.kind import Fault, Kind, command, readable, same
from tests.fuzz.nets import FIELDS, TYPES, nets
from tests.fuzz.pieces import PIECES, altered, damaged, document, encoded, pick
from tests.support.policies import EVERY

FILE = "net.yaml"
OTHER_REASONS = ("budget", " needs ")  # a policy's refusal: the net is too large for the GPU


@st.composite
def files(draw: Any) -> bytes:
    tree = draw(nets())
    how = pick(draw, ["right", "altered", "altered", "altered", "damaged"])
    if how == "altered":
        tree = draw(altered(tree, (*FIELDS, *TYPES)))
    data = encoded(document(tree))
    return draw(damaged(data, PIECES)) if how == "damaged" else data


def check(data: bytes, folder: Path) -> bool:
    path = folder / FILE
    path.write_bytes(data)
    chance = crc32(data)
    listing = ["--listing"] if chance % 5 == 0 else []
    ended = command("plan", FILE, "--gpu", "titan_x", "--policy", EVERY[chance % len(EVERY)], *listing)
    if ended.code and not all(word in ended.err + ended.out for word in OTHER_REASONS):
        readable(ended.err, FILE)
    try:
        net = Net.from_file(path)
    except BadInput:
        if not ended.code:
            raise Fault("the command accepts a net that Python refuses") from None
        return False
    rewritten(net)
    return not ended.code


def rewritten(net: Net) -> None:
    same("the net and its YAML", Net.from_text(net.to_yaml()).parameter, net.parameter)
    names: dict[str, Any] = {}
    exec(compile(net.to_python(), "net.py", "exec"), names)
    made = [kind for kind in names.values() if isinstance(kind, type) and issubclass(kind, minidnn.Net)]
    if len(made) != 1:
        raise Fault(f"{len(made)} classes in the net's Python")
    same("the net and its Python", made[0]().parameter, net.parameter)


KIND = Kind("net", files(), check, 40)
