"""Caffe's binary files, weights, states, means and images: refused with the file's name, or read."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from minidnn.data import mean_image
from minidnn.errors import BadInput
from minidnn.layers import rows
from minidnn.nets.net import Net
from minidnn.schema import blobs
from minidnn.schema.wire import sized, varint
from minidnn.training import caffemodel, solverstate
from minidnn.training.snapshot import load
from tests.fuzz.kind import Fault, Kind, inside, refused, strictly
from tests.fuzz.kinds.snapshot import NET, session
from tests.fuzz.mutate import mutated
from tests.fuzz.pieces import damaged, pick
from tests.fuzz.wire import fields_changed

MODEL, STATE, MEAN, IMAGE = FILES = ("w.caffemodel", "w.solverstate", "w.binaryproto", "w.datum")
SHAPES = {"ip/w": (2, 3), "ip/b": (2,)}
NUMBERS = [0, 1, 2, 127, 128, 2**31 - 1, 2**31, 2**32, 2**63, 2**64 - 1]
PIECES = [
    *map(varint, NUMBERS),
    *(varint(field << 3 | wire) for field in (1, 2, 5, 7, 8, 100, 20000) for wire in range(6)),
    *(sized(field, b"") for field in (5, 7, 100)),
    sized(7, sized(1, varint(2**62) * 3)),
]


def weights(value: float = 0.5) -> dict[str, rows.Rows]:
    return {name: rows.of(np.full(shape, value, np.float32)) for name, shape in SHAPES.items()}


def model_bytes() -> bytes:
    return b"".join(caffemodel.pieces(Net.from_text(NET).parameter, {"ip": list(weights().values())}))


def save(folder: Path) -> None:
    """Write a snapshot's two files."""
    run = {"position": 14, "seed": 3, "facts": {}}
    state = {"ip.w.momentum": weights()["ip/w"], "ip.b.momentum": weights()["ip/b"], "loss_scale": weights()["ip/b"]}
    model = solverstate.Model(Net.from_text(NET).parameter, {"ip": list(SHAPES)})
    solverstate.save(folder / STATE, model, weights(), state, 7, run)


@cache
def state_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder, inside(Path(folder)):
        save(Path())
        return Path(STATE).read_bytes()


def numbers(*values: int) -> bytes:
    """The fields 1, 2, ... with these values."""
    return b"".join(varint(i << 3) + varint(n) for i, n in enumerate(values, 1))


def mean_bytes() -> bytes:
    return numbers(1, 2, 2, 1) + sized(5, bytes(16))


def image_bytes() -> bytes:
    return numbers(2, 2, 1) + sized(4, bytes(4)) + varint(40) + b"\3"


@st.composite
def files(draw: Any) -> bytes:
    """The first byte says which file it is."""
    which = pick(draw, [0, 0, 1, 2, 3])
    data = [model_bytes, state_bytes, mean_bytes, image_bytes][which]()
    how = pick(draw, ["right", "bytes", "bytes", "changed", "fields", "fields", "fields"])
    if how == "bytes":
        data = draw(damaged(data, PIECES))
    elif how == "changed":
        data = draw(mutated(data, PIECES))
    elif how == "fields":
        data = draw(fields_changed(data, [2, 5, 7, 100, *range(101, 150)]))
    return bytes([which]) + data


def check(data: bytes, folder: Path) -> bool:
    name = FILES[data[0] % len(FILES)] if data else MODEL
    (folder / name).write_bytes(data[1:])
    uses: dict[str, list[Any]] = {
        MODEL: [session().load, Net.from_file],
        STATE: [beside],
        MEAN: [lambda path: mean_image(str(path))],
        IMAGE: [blobs.datum],
    }
    taken = []
    for use in uses[name]:
        try:
            with strictly():
                taken.append(use(folder / name))
        except BadInput as error:
            refused(error, name)
    return bool(taken)


def beside(path: Path) -> object:
    """The snapshot of this state and of whole weights. One that is not what was saved is refused, or of Caffe's own
    form: then what minidnn added is gone as a whole."""
    given = path.read_bytes()
    save(path.parent)
    path.write_bytes(given)
    found = load(path)
    if given != state_bytes() and found.position is not None:
        raise Fault("a changed snapshot was accepted")
    return found


KIND = Kind("caffe", files(), check, 60)
