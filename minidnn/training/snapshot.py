"""Snapshots: all that a run needs to continue, in one safetensors file `<prefix>_iter_N.safetensors`, whole or absent.

A solver file may ask for Caffe's own two files instead (training/solverstate.py).

Weights have the names "<layer>/<blob>" and Caffe's blob shapes, so any safetensors reader can use them. Optimizer
state has the names "solver/<tensor>". The header's metadata holds the iteration, the data position and the seed (every
random number is a function of these three). It also holds a checksum of names, shapes and bytes.

Saving writes a new file next to the target, flushes it to the disk, renames it, and flushes the folder
(files/replace.py). A crash at any moment leaves the previous snapshots intact; the next run of the same prefix removes
the crash's half-written file. Runs of one prefix need not wait for each other: the last one to finish a snapshot wins.
Saving and loading hold a few rows in memory, never all tensors. Loading checks the whole file.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minidnn import sizes
from minidnn.errors import BadInput, Failed
from minidnn.files.replace import make_folder, remove_left, replacing, try_replacing
from minidnn.layers import rows
from minidnn.layers.rows import Rows
from minidnn.schema import InvalidFile
from minidnn.spoken import option
from minidnn.training import caffemodel, solverstate, tensor_file
from minidnn.training.best import Best
from minidnn.training.tensor_file import TensorFileError

VERSION = 1
SUFFIX = tensor_file.SUFFIX
SUFFIXES = (SUFFIX, solverstate.SUFFIX)
STATE = "solver/"
_COUNTS = {"iteration": 2**63, "position": 2**63, "seed": 2**64}  # each number must be below this


class SnapshotError(BadInput, ValueError):
    """A file that is no usable snapshot; the message names the file and the fault."""


class SaveError(Failed, OSError):
    """A snapshot could not be written; the earlier ones are intact."""


@dataclass(frozen=True)
class Snapshot:
    """All values that a run continues from: `weights` by "<layer>/<blob>", `state` by tensor name, and counts."""

    weights: Mapping[str, Rows]  # `save` takes arrays as well
    state: Mapping[str, Rows]
    iteration: int
    position: int | None  # training samples consumed; None, and no seed: a run of Caffe's
    seed: int | None
    facts: Mapping[str, object] = field(default_factory=dict)  # the last bits depend on these: device, algorithms
    best: Mapping[str, object] | None = None  # the best test of a run that keeps one: training/best.py
    class_names: Sequence[str] = ()  # by label, as the data tell them

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors: a file has a few KiB more."""
        return sum(values.nbytes for values in (*self.weights.values(), *self.state.values()))


def path_of(prefix: str | Path, iteration: int, suffix: str = SUFFIX) -> Path:
    """The path of the snapshot of that iteration."""
    return Path(f"{prefix}_iter_{iteration}{suffix}")


def best_of(prefix: str | Path, suffix: str = SUFFIX) -> Path:
    """The path of the snapshot of the best test."""
    return Path(f"{prefix}_best{suffix}")


def save(
    prefix: str | Path, snapshot: Snapshot, model: solverstate.Model | None = None, best: bool = False
) -> Path:  # fmt: skip
    """Write the snapshot and return its path. An existing file of that name is replaced as a whole.

    model: write Caffe's two files, with this net; None: a safetensors file
    best:  give it the name of the best test's snapshot, which is the same for every iteration

    Raises SaveError if the snapshot cannot be written; an existing file is then unchanged."""
    suffix = SUFFIX if model is None else solverstate.SUFFIX
    path = best_of(prefix, suffix) if best else path_of(prefix, snapshot.iteration, suffix)
    try:
        make_folder(path.parent)
        if model is None:
            _write(path, snapshot)
        else:
            for each in _files(path):
                _check_place(each)
            run = _run(snapshot)
            weights, state = ({n: rows.of(v) for n, v in of.items()} for of in (snapshot.weights, snapshot.state))
            solverstate.save(path, model, weights, state, snapshot.iteration, run)
    except OSError as error:
        why = error.strerror or str(error)
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(path.parent).free
            why += f"; it needs {sizes.text(snapshot.nbytes)}, but {sizes.text(free)} are free"
        raise SaveError(f"{path}: could not be written: {why}. Earlier snapshots are intact.") from error
    return path


def _files(path: Path) -> list[Path]:
    """The files of a snapshot with that path."""
    return [path, path.with_suffix(caffemodel.SUFFIX)] if path.suffix == solverstate.SUFFIX else [path]


def _write(path: Path, snapshot: Snapshot) -> None:
    tensors = {name: rows.of(values) for name, values in snapshot.weights.items()}
    tensors |= {STATE + name: rows.of(values) for name, values in snapshot.state.items()}
    meta = {"version": VERSION, "iteration": snapshot.iteration, **_run(snapshot)}
    digest = _begun(meta)
    _check_place(path)
    with replacing(path, "wb") as file:
        writer = tensor_file.Writer(file, tensors, _metadata(meta, _begun({})))
        for name, piece in _digested(tensors, digest):
            writer.write(name, piece)
        writer.end(_metadata(meta, digest))


def _run(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot's facts about its run, apart from the iteration."""
    best = {} if snapshot.best is None else {"best": dict(snapshot.best)}
    names = {"class_names": list(snapshot.class_names)} if snapshot.class_names else {}
    return {"position": snapshot.position, "seed": snapshot.seed, "facts": dict(snapshot.facts), **best, **names}


def check_writable(
    prefix: str | Path, iteration: int = 0, nbytes: int = 0, suffix: str = SUFFIX, best: bool = False
) -> None:  # fmt: skip
    """Raise SaveError if a snapshot of that iteration and of so many bytes could not be written now: better before a
    long run than after it. Removes files that killed runs of this prefix have left.

    The iteration is a run's last, since that snapshot has the longest name. `best`: whether the run also keeps the
    snapshot of its best test."""
    path, kept = path_of(prefix, iteration, suffix), best_of(prefix, suffix)
    new = [each for one in (path, *([kept] if best else [])) for each in _files(one)]
    nbytes *= 2 if best and not kept.exists() else 1
    try:
        make_folder(path.parent)
        for begin in (_begin(prefix).name, f"{kept.stem}."):
            remove_left(path.parent, begin)
        for _, result in _numbered(prefix, (*SUFFIXES, caffemodel.SUFFIX)):
            _check_place(result)
        for each in new:
            _check_place(each)
            try_replacing(each)
        disk = shutil.disk_usage(path.parent)
    except OSError as error:
        where = error.filename or path.parent
        what = f"{path}: cannot write a snapshot there: {where}: {error.strerror}; name another prefix"
        raise SaveError(what) from error
    if disk.total and disk.free < nbytes:  # a file system of no bytes at all does not say
        free = sizes.text(disk.free)
        raise SaveError(
            f"{path}: cannot write a snapshot there: it needs {sizes.text(nbytes)}, but {free} are free; free some "
            "space or name another prefix"
        )


def _numbered(prefix: str | Path, suffixes: Sequence[str] = SUFFIXES) -> Iterator[tuple[int, Path]]:
    """(iteration, path) of all that has the name of a snapshot of this prefix."""
    begin = _begin(prefix)
    for path in begin.parent.glob(f"{glob.escape(begin.name)}*"):
        number = path.name[len(begin.name) :].removesuffix(path.suffix)
        if path.suffix in suffixes and number.isascii() and number.isdigit():
            yield int(number), path


def _begin(prefix: str | Path) -> Path:
    """The path of a snapshot without its number and suffix."""
    return Path(f"{prefix}_iter_")  # not Path(prefix), which would drop a slash at its end


def _check_place(path: Path) -> None:
    """Raise OSError if anything but a file or a link, for example a folder, is in a snapshot's place."""
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            what = "a folder" if stat.S_ISDIR(mode) else "no file"
            raise FileExistsError(errno.EEXIST, f"there is {what} where a snapshot may have to go", str(path))


def load(path: str | Path) -> Snapshot:
    """The snapshot in a file, safetensors or .solverstate, its checksum verified; values are read when they are asked
    for.

    Raises SnapshotError if it is not whole or has only weights."""
    if Path(path).suffix == solverstate.SUFFIX:
        return _of_caffe(path)
    if Path(path).suffix == caffemodel.SUFFIX:
        raise SnapshotError(f"{path}: weights only: the state of its run is in the .solverstate file next to it")
    tensors, metadata = _read(path)
    if "minidnn" not in metadata:
        raise SnapshotError(f"{path}: weights only, without the state of a run to resume (use {option('weights')})")
    meta = json.loads(metadata["minidnn"])
    _check_run(path, meta, _COUNTS)
    return Snapshot(
        {name: values for name, values in tensors.items() if not name.startswith(STATE)},
        {name[len(STATE) :]: values for name, values in tensors.items() if name.startswith(STATE)},
        meta["iteration"],
        meta["position"],
        meta["seed"],
        meta["facts"],
        meta.get("best"),
        meta.get("class_names", ()),
    )


def _of_caffe(path: str | Path) -> Snapshot:
    try:
        result = solverstate.load(path)
    except InvalidFile as error:
        raise SnapshotError(str(error)) from error
    except OSError as error:
        raise SnapshotError(f"{error.filename or path}: {error.strerror or error}") from error
    run = result.run
    if run is None:
        return Snapshot(result.weights, result.state, result.iteration, None, None)
    _check_run(path, run, ("position", "seed"))
    about = run["position"], run["seed"], run["facts"], run.get("best"), run.get("class_names", ())
    return Snapshot(result.weights, result.state, result.iteration, *about)


def _check_run(path: str | Path, meta: Mapping[str, Any], counts: Iterable[str]) -> None:
    """Raise SnapshotError unless these counts, and the facts, are valid."""
    for key in counts:
        above = _COUNTS[key]
        if type(meta.get(key)) is not int or not 0 <= meta[key] < above:
            what = f"expected a whole number from 0 to {above - 1}"
            raise SnapshotError(f"{path}: corrupt: its {key} is {meta.get(key)!r}; {what}")
    if not isinstance(meta.get("facts"), dict):
        raise SnapshotError(f"{path}: corrupt: its facts are {meta.get('facts')!r}; expected a mapping")
    _check_names(path, meta)
    if "best" in meta:
        try:
            Best.of(meta["best"])
        except ValueError as error:
            raise SnapshotError(f"{path}: corrupt: {error}") from None


def _check_names(path: str | Path, meta: Mapping[str, Any]) -> None:
    """Raise SnapshotError unless the names of the classes are texts."""
    names = meta.get("class_names", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SnapshotError(f"{path}: corrupt: its class_names are {names!r}; expected a list of texts")


def load_weights(path: str | Path) -> dict[str, Rows]:
    """The weights of a snapshot, or of any safetensors file, by "<layer>/<blob>"; those of a .caffemodel by
    "<layer>/<number>". Raises SnapshotError, and InvalidFile for a bad .caffemodel."""
    if Path(path).suffix == caffemodel.SUFFIX:
        return caffemodel.read(path)
    return {name: values for name, values in _read(path)[0].items() if not name.startswith(STATE)}


def class_names(path: str | Path) -> tuple[str, ...]:
    """The names of the classes that a snapshot brings, by label; () of a file without. Raises SnapshotError."""
    if Path(path).suffix != SUFFIX:
        return ()
    try:
        meta = json.loads(tensor_file.read(path)[1].get("minidnn", "{}"))
    except (ValueError, RecursionError) as error:
        raise SnapshotError(f"{path}: corrupt: its metadata cannot be read") from error
    _check_names(path, meta)
    return tuple(meta.get("class_names", ()))


def latest(prefix: str | Path) -> tuple[Path | None, Snapshot | None, list[str]]:
    """(path, snapshot, reasons): the valid snapshot of most iterations, and for each later one why it is not valid.

    Path and snapshot are None if no snapshot of that prefix is valid."""
    rejected: list[str] = []
    for _, path in sorted(_numbered(prefix), reverse=True):
        try:
            return path, load(path), rejected
        except SnapshotError as error:
            rejected.append(str(error))
    return None, None, rejected


def _read(path: str | Path) -> tuple[dict[str, Rows], dict[str, str]]:
    """All tensors and the metadata of a file. Raises SnapshotError if the file cannot be read or is not whole."""
    try:
        tensors, metadata = tensor_file.read(path)
        if "minidnn" in metadata:
            _check(path, tensors, metadata["minidnn"])
    except TensorFileError as error:
        raise SnapshotError(str(error)) from error
    return tensors, metadata


def _check(path: str | Path, tensors: Mapping[str, Rows], metadata: str) -> None:
    """Raise SnapshotError if the tensors do not have the checksum of this metadata, or if its version is unknown."""
    try:
        meta = json.loads(metadata)
        version, checksum = meta["version"], meta.pop("checksum")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SnapshotError(f"{path}: corrupt: its metadata cannot be read") from error
    digest = _begun(meta)
    for _ in _digested(tensors, digest):
        pass
    if checksum != _text(digest):
        raise SnapshotError(f"{path}: corrupt: its contents do not have the checksum that it carries")
    if version != VERSION:
        raise SnapshotError(f"{path}: format version {version}; this minidnn reads version {VERSION}")


# ---- the checksum: a SHA-256 of the metadata and of all names, types, shapes and bytes


def _begun(meta: Mapping[str, object]) -> hashlib._Hash:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode())


def _digested(tensors: Mapping[str, Rows], digest: hashlib._Hash) -> Iterator[tuple[str, np.ndarray]]:
    """(name, rows) of all tensors, by name; the digest takes them in on the way."""
    for name in sorted(tensors):
        values = tensors[name]
        digest.update(f"\n{name} {values.dtype} {values.shape}\n".encode())
        for piece in values.pieces():
            digest.update(piece.reshape(-1).view(np.uint8).data)
            yield name, piece


def _text(digest: hashlib._Hash) -> str:
    return f"sha256:{digest.hexdigest()}"


def _metadata(meta: Mapping[str, object], digest: hashlib._Hash) -> dict[str, str]:
    """The header's metadata, as long for any digest. One entry: other writers of safetensors order several entries at
    random, and equal runs must give equal files."""
    return {"minidnn": json.dumps({**meta, "checksum": _text(digest)}, sort_keys=True)}
