"""Snapshots as Caffe's two files, `<prefix>_iter_N.caffemodel` and `.solverstate`: a run goes on from them bit for bit.

Caffe's own state is the iteration and the history. The history has an array per blob of the net for each number that
the optimizer keeps of a weight, in the net's order, also for blobs that never learn. A field of ours, which Caffe
skips, has the data position, the seed, and a checksum of both files. A state that Caffe wrote lacks it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minidnn.files.parts import Parts
from minidnn.files.replace import replacing
from minidnn.layers import rows
from minidnn.layers.rows import Rows
from minidnn.schema import InvalidFile, NetParameter
from minidnn.schema.binary import Resume, SolverState
from minidnn.schema.blobs import blob, message
from minidnn.schema.table import fields
from minidnn.schema.wire import message_bytes, sized
from minidnn.training import caffemodel

SUFFIX = ".solverstate"
VERSION = 1
_HISTORY, _OURS = (fields(SolverState)[name].number or 0 for name in ("history", "minidnn"))
_ABOUT, _STATE = (fields(Resume)[name].number or 0 for name in ("about", "state"))
_CHUNK = 8 * 2**20  # bytes that are read at once


@dataclass(frozen=True)
class Model:
    """A .caffemodel apart from its values: the net, and the names of each layer's blobs among the weights."""

    net: NetParameter
    layout: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class State:
    """The content of the two files. If Caffe wrote them, `run` is None, and `state` has "#0", "#1", ... in Caffe's
    order."""

    weights: Mapping[str, Rows]  # by "<layer>/<number>"
    state: Mapping[str, Rows]  # by tensor name
    iteration: int
    run: Mapping[str, Any] | None  # position, seed, facts


def history(weights: Iterable[str], state: Iterable[str]) -> list[tuple[str, str]]:
    """(weight "<layer>/<blob>", name of the optimizer's tensor, or "") of each array of the history, in its order."""
    tensors = {".".join(weight.rsplit("/", 1)): weight for weight in weights}
    kept = dict.fromkeys(state)
    slots = dict.fromkeys(slot for tensor, _, slot in (name.rpartition(".") for name in kept) if tensor in tensors)
    return [
        (weight, name if (name := f"{tensor}.{slot}") in kept else "")
        for slot in slots or ("",)
        for tensor, weight in tensors.items()
    ]


def named(state: Mapping[str, Rows], weights: Iterable[str], mine: Iterable[str]) -> dict[str, Rows]:
    """The history of a run of Caffe's by the names of our tensors; of our own run, as it is.

    Raises ValueError if there are more or fewer arrays than the net and the optimizer have."""
    if not any(name.startswith("#") for name in state):
        return dict(state)
    order = history(weights, mine)
    if len(order) != len(state):
        raise ValueError(f"it has {len(state)} arrays of history; this net and this optimizer have {len(order)}")
    return {name: state[f"#{i}"] for i, (_, name) in enumerate(order) if name}


def save(
    path: Path, model: Model, weights: Mapping[str, Rows], state: Mapping[str, Rows], iteration: int,
    run: Mapping[str, Any],
) -> None:  # fmt: skip
    """Write both files, the weights first; each is whole or absent. Raises OSError, and TooLarge."""
    order = history(weights, state)
    rest = {name: values for name, values in state.items() if name not in {name for _, name in order}}
    about = {"version": VERSION, **run, "history": [name for _, name in order], "state": list(rest)}
    digest = _begun(about)
    layers = {layer: [weights[name] for name in names] for layer, names in model.layout.items()}
    beside = path.with_suffix(caffemodel.SUFFIX)
    with replacing(beside, "wb") as file:
        for piece in caffemodel.pieces(model.net, layers):
            digest.update(piece)
            file.write(piece)
    with replacing(path, "wb") as file:
        given = SolverState(iter=iteration, learned_net=str(beside))
        for raw in _state(message_bytes(given), order, weights, state, rest):
            digest.update(raw)
            file.write(raw)
        text = json.dumps({**about, "checksum": digest.hexdigest()}, sort_keys=True)
        file.write(sized(_OURS, sized(_ABOUT, text.encode())))


def load(path: str | Path) -> State:
    """The content of both files. The .caffemodel lies beside the state, or at the path in it.

    Raises InvalidFile if one of them is not whole, and OSError if one cannot be opened."""
    file, given = message(path, SolverState)
    model = Path(path).with_suffix(caffemodel.SUFFIX)
    if not model.exists() and given.get("learned_net"):
        model = Path(str(given["learned_net"]))
    weights = caffemodel.read(model)
    iteration = given.get("iter", 0)
    if type(iteration) is not int or iteration < 0:
        raise InvalidFile([f"{path}: corrupt: its iteration is {iteration!r}"])
    arrays = [caffemodel.rows_of(blob(file, b, f"history {i}")) for i, b in enumerate(given.get("history", ()))]
    ours = given.get("minidnn")
    if not isinstance(ours, dict):
        return State(weights, {f"#{i}": values for i, values in enumerate(arrays)}, iteration, None)
    more = [caffemodel.rows_of(blob(file, b, f"state {i}")) for i, b in enumerate(ours.get("state", ()))]
    about = _about(path, ours.get("about"))
    names, others = about.get("history", []), about.get("state", [])
    if len(names) != len(arrays) or len(others) != len(more):
        raise InvalidFile([f"{path}: corrupt: it has not as many arrays as it says"])
    _check(path, file, model, str(ours.get("about")), about)
    state = {name: values for name, values in zip([*names, *others], [*arrays, *more], strict=True) if name}
    return State(weights, state, iteration, about)


def _state(
    begin: bytes, order: list[tuple[str, str]], weights: Mapping[str, Rows], state: Mapping[str, Rows],
    rest: Mapping[str, Rows],
) -> Iterator[bytes]:  # fmt: skip
    """The bytes of a .solverstate up to our field about the run."""
    yield begin
    for weight, name in order:
        shape = weights[weight].shape
        values = state[name] if name else rows.full(shape, 0.0, np.dtype("<f4"))
        yield caffemodel.blob_head(_HISTORY, shape)
        yield from map(caffemodel.raw, values.pieces())
    for values in rest.values():
        numbers = b"".join(map(caffemodel.raw, values.pieces()))
        yield sized(_OURS, caffemodel.blob_head(_STATE, values.shape) + numbers)


def _begun(about: Mapping[str, Any]) -> hashlib._Hash:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode())


def _about(path: str | Path, data: object) -> dict[str, Any]:
    """Our field of a .solverstate about its run. Raises InvalidFile if it is not of our form."""
    try:
        about = json.loads(str(data))
        lists = [about[name] for name in ("history", "state")]
        if not all(isinstance(name, str) for names in lists for name in names) or "checksum" not in about:
            raise ValueError("names are missing")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidFile([f"{path}: corrupt: what it says about its run cannot be read"]) from None
    if about.get("version") != VERSION:
        raise InvalidFile([f"{path}: format version {about.get('version')!r}; this minidnn reads version {VERSION}"])
    return about


def _check(path: str | Path, file: Parts, model: Path, checksums: str, about: Mapping[str, Any]) -> None:
    """Raise InvalidFile if the files do not have the checksum of their snapshot."""
    digest = _begun({name: value for name, value in about.items() if name != "checksum"})
    end = sized(_OURS, sized(_ABOUT, checksums.encode("utf-8", "surrogatepass")))
    weights = Parts(model, lambda text: InvalidFile([text]))
    for part, size in ((weights, weights.size), (file, file.size - len(end))):
        for at in range(0, size, _CHUNK):
            digest.update(part.read(at, min(_CHUNK, size - at)))
    if digest.hexdigest() != about["checksum"] or file.read(file.size - len(end), len(end)) != end:
        raise InvalidFile([f"{path}: corrupt: with {model.name} it does not have the checksum that it carries"])
