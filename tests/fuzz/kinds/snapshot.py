"""Snapshots and other safetensors: refused with the file's name, or saved and loaded again as the same bytes."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import strategies as st

from minidnn.errors import BadInput
from minidnn.nets.net import Net
from minidnn.training.session import Session
from minidnn.training.snapshot import Snapshot, latest, load, load_weights, save
from tests.fuzz.kind import Fault, Kind, Misread, refused, strictly
from tests.fuzz.mutate import flipped
from tests.fuzz.pieces import BORDERS, TEXTS, altered, damaged, pick
from tests.fuzz.samples import changed_bit

FILE = "s_iter_7.safetensors"
NET = """name: small
layer:
- {name: data, type: Input, top: data, input_param: {shape: {dim: [2, 3]}}}
- {name: ip, type: InnerProduct, bottom: data, top: ip, inner_product_param: {num_output: 2}}
"""
DTYPES = ["F32", "F64", "F16", "BF16", "I32", "I64", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "C64", "F4", "X", ""]
BYTES = {"F64": 8, "I64": 8, "F16": 2, "BF16": 2, "U8": 1, "BOOL": 1}
VALUES = [0.0, 1.5, -1.0, 1e30, float("nan"), float("inf")]


@lru_cache
def session() -> Session:
    return Session(Net.from_text(NET), device="reference", policy="liveness:m")


@lru_cache
def good() -> bytes:
    """A snapshot, which has a checksum over all that is in it."""
    with TemporaryDirectory() as folder:
        return save(Path(folder) / "s", Snapshot(session().weight_rows(), {}, 7, 14, 3)).read_bytes()


@st.composite
def files(draw: Any) -> bytes:
    if pick(draw, [False] * 6 + [True]):
        return draw(flipped(good()))
    tensors: dict[str, Any] = {}
    body = b""
    names = [
        "ip/w",
        "ip/b",
        *draw(st.lists(st.sampled_from([*TEXTS, "solver/ip.w.momentum", "ip/x", "conv/w"]), max_size=2)),
    ]
    for name in names:
        shape = {"ip/w": [2, 3], "ip/b": [2]}.get(name) or pick(draw, [[], [1], [0], [2, 2]])
        kind = pick(draw, ["F32"] * 12 + DTYPES)
        if kind == "F32":
            data = np.full(shape, pick(draw, VALUES), np.float32).tobytes()
        else:
            data = bytes(BYTES.get(kind, 4) * int(np.prod(shape)))
        tensors[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    how = pick(draw, ["right", "meta", "meta", "meta", "header", "damaged", "weights"])
    header: dict[str, Any] = dict(tensors)
    if how != "weights":
        meta: Any = {"version": 1, "iteration": 7, "position": 14, "seed": 3, "facts": {"net": "small"}}
        if how == "meta":
            meta = draw(altered(meta, ("version", "iteration", "facts", "checksum")))
            meta = json.loads(json.dumps(meta, default=lambda raw: raw.text))
        if isinstance(meta, dict) and pick(draw, [True] * 9 + [False]):
            meta = {**meta, "checksum": checksum(tensors, body, meta)}
        text = json.dumps(meta, sort_keys=True)
        if how == "meta" and pick(draw, [False] * 5 + [True]):
            text = pick(draw, ["", "[" * 100_000, "{}", "[]", "null", "7", '"a"', text[:-1], "{" + text])
        header["__metadata__"] = {"minidnn": text}
    if how == "header":
        header = draw(altered(header, ("__metadata__", "dtype", "shape", "data_offsets"), 2))
    raw = json.dumps(header, default=lambda raw: raw.text).encode()
    length = pick(draw, [len(raw)] * 20 + [0, len(raw) - 1, len(raw) + 1, 2**31, 2**63, 2**64 - 1, 10**8])
    data = length.to_bytes(8, "little") + raw + body
    return draw(damaged(data, [json.dumps(b).encode() for b in BORDERS])) if how == "damaged" else data


def checksum(tensors: dict[str, Any], body: bytes, meta: dict[str, Any]) -> str:
    """As minidnn computes it, for tensors that NumPy has."""
    types = {"F32": "float32", "F64": "float64", "F16": "float16", "I32": "int32", "I64": "int64", "U8": "uint8"}
    types["BOOL"] = "bool"
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(tensors):
        first, last = tensors[name]["data_offsets"]
        kind, shape = types.get(tensors[name]["dtype"], "none"), tuple(tensors[name]["shape"])
        digest.update(f"\n{name} {kind} {shape}\n".encode("utf-8", "surrogatepass") + body[first:last])
    return f"sha256:{digest.hexdigest()}"


def check(data: bytes, folder: Path) -> bool:
    path = folder / FILE
    path.write_bytes(data)
    taken = []
    for use in (session().load, load_weights, load):
        try:
            with strictly():
                taken.append(use(FILE))
        except BadInput as error:
            refused(error, FILE)
    found, snapshot, _ = latest("s")
    whole = bool(taken) and isinstance(taken[-1], Snapshot)
    if (found is None) == whole or (snapshot is None) == whole:
        raise Fault("the newest snapshot is another than the one that can be loaded")
    if whole:
        again(taken[-1], folder)
        if changed_bit(good(), data) is not None and (folder / "a_iter_7.safetensors").read_bytes() != good():
            raise Misread("a snapshot with another bit is read as another one")
    return bool(taken)


def again(snapshot: Snapshot, folder: Path) -> None:
    first = save(folder / "a", snapshot)
    second = save(folder / "b", load(first))
    if first.read_bytes() != second.read_bytes():
        raise Fault("a snapshot that was loaded and saved has other bytes")


KIND = Kind("snapshot", files(), check, 80)
