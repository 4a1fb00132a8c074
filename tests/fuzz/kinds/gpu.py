"""Profiles of GPUs: refused with the file's name, or good for planning: its seconds are numbers."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from minidnn.costs import profile
from minidnn.errors import BadInput
from minidnn.memory.planning import arrange
from minidnn.nets.net import Net
from minidnn.program import Program
from minidnn.programs.build import programs
from minidnn.schema import read
from tests.fuzz.kind import Fault, Kind, command, readable, refused, strictly
from tests.fuzz.kinds.net import OTHER_REASONS
from tests.fuzz.pieces import PIECES, altered, damaged, document, encoded, pick
from tests.support.paths import NET_FILES, ROOT
from tests.support.policies import KINDS as POLICIES

FILE = "card.yaml"
CARDS = ["titan_x", "v100", "h200"]
FIELDS = ["value", "source", "memory", "title", "tf32_flops", "float16_flops", "tensor", "tf32", "workspace_of", "x"]


@lru_cache
def card(name: str) -> str:
    """The values of a shipped profile, as JSON."""
    return json.dumps(read(ROOT / "minidnn" / "costs" / "gpus" / f"{name}.yaml").data)


@lru_cache
def net() -> Program:
    return programs(Net.from_file(NET_FILES / "lenet.yaml"), None, ["TRAIN"])["TRAIN"]


@st.composite
def files(draw: Any) -> bytes:
    tree = json.loads(card(pick(draw, CARDS)))
    how = pick(draw, ["right", "altered", "altered", "altered", "altered", "damaged"])
    if how == "altered":
        tree = draw(altered(tree, FIELDS, 2))
    data = encoded(document(tree))
    return draw(damaged(data, PIECES)) if how == "damaged" else data


def check(data: bytes, folder: Path) -> bool:
    (folder / FILE).write_bytes(data)
    name = FILE + [":tf32", ":fp32", ""][crc32(data) % 3]
    try:
        with strictly():
            costs = profile(name)
    except BadInput as error:
        refused(error, FILE)
        return False
    policy = POLICIES[crc32(data) % len(POLICIES)]
    for op in net().ops:
        for choice in costs.choices(op):
            if not (0 <= choice.seconds < math.inf and choice.algorithm.workspace >= 0):
                raise Fault(f"{op.name} takes {choice.seconds} s with {choice.algorithm}")
    try:
        with strictly():
            arrange([net()], policy, costs)
    except BadInput as error:
        refused(error)
    if crc32(data) % 4 == 0:
        (folder / "net.yaml").write_bytes((NET_FILES / "lenet.yaml").read_bytes())
        ended = command("plan", "net.yaml", "--gpu", name, "--policy", policy, "--host-ring", "1MiB")
        if ended.code and not all(word in ended.err + ended.out for word in OTHER_REASONS):
            readable(ended.err, FILE)
    return True


KIND = Kind("gpu", files(), check, 60)
