"""Plan files: an edited one is refused with its name, or its schedule passes the proof and the tests' own judge.

A case is a digit, which chooses the program that is planned, and the file.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import strategies as st

from minidnn.costs import Costs
from minidnn.errors import BadInput
from minidnn.memory.planning import arrange
from minidnn.memory.policies import plan_file
from minidnn.program import Program
from tests.fuzz.kind import Fault, Kind, refused, same, strictly
from tests.fuzz.pieces import altered, damaged, pick
from tests.support.oracle import broken
from tests.support.policies import KINDS as POLICIES
from tests.support.programs import chain, costs, random_graph, residual

FILE = "edited.plan"
PROGRAMS = 4
PIECES = [
    b"null",
    b"-1",
    b"1e999",
    b"NaN",
    b"{}",
    b'"a"',
    b"[" * 3000,
    b"\xff",
    b"9" * 5000,
    b"\\ud800",
    b"\\u0000",
    b", ",
]


@lru_cache
def program(number: int) -> Program:
    return (lambda: chain(3), lambda: residual(2), lambda: random_graph(5, 5), lambda: random_graph(7, 8))[number]()


@lru_cache
def toy() -> Costs:
    return costs()


@lru_cache(maxsize=200)
def saved(number: int, policy: str) -> str:
    with TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        plan_file.save(path, arrange([program(number)], policy, toy()), toy())
        return path.read_text()


@st.composite
def files(draw: Any) -> bytes:
    number = draw(st.integers(0, PROGRAMS - 1))
    text = saved(number, pick(draw, POLICIES))
    how = pick(draw, ["right", "edited", "edited", "edited", "altered", "damaged"])
    if how in ("edited", "altered"):
        tree = json.loads(text)
        if how == "edited":
            edit(draw, tree["programs"]["TRAIN"])
        else:
            tree = draw(altered(tree, (*tree, *tree["programs"]["TRAIN"], *plan_file.POINTS), 2))
        data = json.dumps(tree, default=lambda raw: raw.text).encode()
    else:
        data = text.encode()
    if how == "damaged":
        data = draw(damaged(data, PIECES, 2))
    return str(number).encode() + data


def edit(draw: Any, described: dict[str, Any]) -> None:
    """A hand's changes: a line gone, twice or elsewhere, another's name."""
    names, ops = list(described["tensors"]), list(described["ops"])
    for _ in range(draw(st.integers(1, 3))):
        field = pick(draw, ["order", "offloads", "offloads", "share", "algorithm", "hold"])
        value = described[field]
        if field in ("order", "offloads") and value and draw(st.booleans()):
            i, j = draw(st.integers(0, len(value) - 1)), draw(st.integers(0, len(value) - 1))
            how = pick(draw, ["gone", "twice", "moved"])
            item = value[i] if how == "twice" else value.pop(i)
            if how != "gone":
                value.insert(j, dict(item) if isinstance(item, dict) else item)
        elif field == "order":
            value.append(pick(draw, ops))
        elif field == "offloads":
            offload = pick(draw, value) if value and draw(st.booleans()) else {"tensor": names[0]}
            if not any(offload is known for known in value):
                value.append(offload)
                offload.update(dict.fromkeys(plan_file.POINTS))
            for name in draw(st.lists(st.sampled_from(["tensor", *plan_file.POINTS, "into"]), min_size=1, max_size=4)):
                points = [*described["order"], f"{described['order'][0]}#1", "end", None]
                some = names if name == "tensor" else [{"slot": "s", "nbytes": 1 << 16}] if name == "into" else points
                offload[name] = pick(draw, some)
        elif field == "share":
            slots = [{"slot": "s", "nbytes": n} for n in (0, 5, 1 << 16, -5, 2**62, 2**63, True)]
            holder = pick(draw, [*names, *(plan_file.WORKSPACE + op for op in ops)])
            value[holder] = pick(draw, [*names, *slots])
        elif field == "algorithm":
            value[pick(draw, ops)] = pick(draw, [["fast", 40 * 1024], ["slow", 0], ["fast", 1], ["", 0]])
        else:
            value.append(pick(draw, names))


def check(data: bytes, folder: Path) -> bool:
    path = folder / FILE
    path.write_bytes(data[1:])
    planned = program(int(data[:1]) % PROGRAMS)
    try:
        with strictly():
            kept = arrange([planned], FILE, toy())
    except BadInput as error:
        refused(error, FILE)
        return False
    schedule = kept.schedules["TRAIN"]
    if why := broken(schedule):
        raise Fault(f"an accepted plan is wrong: {why}")
    plan_file.save(folder / "again.plan", kept, toy())
    again = arrange([planned], "again.plan", toy()).schedules["TRAIN"]
    same("the schedules of a plan and of its copy", str(again), str(schedule))
    return True


KIND = Kind("plan", files(), check, 60)
