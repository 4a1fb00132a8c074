"""Snapshots: all that a run needs to continue, in one safetensors file `<prefix>_iter_N.safetensors`, whole or absent.

Weights have the names "<layer>/<blob>" and Caffe's blob shapes, so any safetensors reader can use them. Optimizer
state has the names "solver/<tensor>". The header's metadata holds the iteration, the data position and the seed (every
random number is a function of these three). It also holds a checksum of names, shapes and bytes.

Saving writes into a folder `<file>.partial` next to the target, flushes the file to the disk, renames it, and flushes
the target's folder. A crash at any moment leaves the previous snapshots intact; the next save of the same name removes
the crash's half-written file. The folder is locked during a save, so that runs of one prefix take turns. Loading
checks the whole file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from minidnn import sizes
from minidnn.errors import BadInput, Failed

VERSION = 1
_NUMBER = re.compile(r"_iter_(\d+)\.safetensors$")
STATE = "solver/"
_COUNTS = {"iteration": 2**63, "position": 2**63, "seed": 2**64}  # each number must be below this


class SnapshotError(BadInput, ValueError):
    """A file that is no usable snapshot; the message names the file and the fault."""


class SaveError(Failed, OSError):
    """A snapshot could not be written; the earlier ones are intact."""


@dataclass(frozen=True)
class Snapshot:
    """All values that a run continues from: `weights` by "<layer>/<blob>", `state` by tensor name, and counts."""

    weights: Mapping[str, np.ndarray]
    state: Mapping[str, np.ndarray]
    iteration: int
    position: int  # training samples consumed
    seed: int
    facts: Mapping[str, object] = field(default_factory=dict)  # the last bits depend on these: device, algorithms


def path_of(prefix: str | Path, iteration: int) -> Path:
    """The path of the snapshot of that iteration."""
    return Path(f"{prefix}_iter_{iteration}.safetensors")


def save(prefix: str | Path, snapshot: Snapshot) -> Path:
    """Write the snapshot and return its path. An existing file of that name is replaced as a whole.

    Raises SaveError if the snapshot cannot be written; an existing file is then unchanged."""
    path = path_of(prefix, snapshot.iteration)
    tensors = {**snapshot.weights, **{STATE + name: array for name, array in snapshot.state.items()}}
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    run = {key: getattr(snapshot, key) for key in ("iteration", "position", "seed")}
    meta = {"version": VERSION, **run, "facts": dict(snapshot.facts)}
    # One entry: safetensors writes several entries in an order that changes from run to run, and equal runs must give
    # equal files.
    metadata = {"minidnn": json.dumps({**meta, "checksum": _checksum(tensors, meta)}, sort_keys=True)}
    try:
        with _partial(path) as folder:
            written = folder / path.name
            save_file(tensors, written, metadata)  # only the owner may read the file that this makes
            written.chmod(folder.stat().st_mode & 0o666)
            _flush(written)
            os.replace(written, path)
        _flush(path.parent)
    except (OSError, SafetensorError) as error:
        needed = sum(array.nbytes for array in tensors.values())
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        with contextlib.suppress(OSError):
            why += f"; it needs {sizes.text(needed)}, {sizes.text(shutil.disk_usage(path.parent).free)} are free"
        raise SaveError(f"{path}: could not be written: {why}. Earlier snapshots are intact.") from error
    return path


def check_writable(prefix: str | Path, iteration: int = 0) -> None:
    """Raise SaveError if a snapshot of that iteration could not be written now: better before a long run than after it.

    The iteration is a run's last, since that snapshot has the longest name."""
    path = path_of(prefix, iteration)
    try:
        with _partial(path):
            pass
    except OSError as error:
        what = f"{path}: no snapshot can be written there: {error.filename}: {error.strerror}; name another prefix"
        raise SaveError(what) from error


@contextlib.contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """An empty, locked folder next to `path`, made with its parents. It is removed at the end with all files in it."""
    folder = path.with_name(path.name + ".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = _locked(folder)
    try:
        for left in folder.iterdir():  # files of a run that was killed
            left.unlink()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(folder: Path) -> int:
    """Make the folder if it is absent, and wait until this process holds its lock. Returns an open file descriptor; to
    close it gives the lock back."""
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        # FileNotFoundError: the process that held the lock has removed the folder meanwhile
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as undo:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            undo.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
            except OSError as error:  # NFS locks no folders: there, users must not share a prefix
                if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP):
                    raise
            if os.path.samestat(os.fstat(handle), os.stat(folder)):
                undo.pop_all()
                return handle


def load(path: str | Path) -> Snapshot:
    """The snapshot in a file, its checksum verified. Raises SnapshotError if it is not whole or has only weights."""
    tensors, metadata = _read(path)
    if "minidnn" not in metadata:
        raise SnapshotError(f"{path}: weights only: it holds no state of a run to resume (use --weights)")
    meta = json.loads(metadata["minidnn"])
    for key, above in _COUNTS.items():
        if type(meta.get(key)) is not int or not 0 <= meta[key] < above:
            what = f"expected a whole number from 0 to {above - 1}"
            raise SnapshotError(f"{path}: corrupt: its {key} is {meta.get(key)!r}; {what}")
    if not isinstance(meta.get("facts"), dict):
        raise SnapshotError(f"{path}: corrupt: its facts are {meta.get('facts')!r}; expected a mapping")
    return Snapshot(
        {name: array for name, array in tensors.items() if not name.startswith(STATE)},
        {name[len(STATE) :]: array for name, array in tensors.items() if name.startswith(STATE)},
        meta["iteration"],
        meta["position"],
        meta["seed"],
        meta["facts"],
    )


def load_weights(path: str | Path) -> dict[str, np.ndarray]:
    """The weights of a snapshot, or of any safetensors file, by "<layer>/<blob>". Raises SnapshotError."""
    return {name: array for name, array in _read(path)[0].items() if not name.startswith(STATE)}


def latest(prefix: str | Path) -> tuple[Path | None, Snapshot | None, list[str]]:
    """(path, snapshot, reasons): the valid snapshot of most iterations, and for each later one why it is not valid.

    Path and snapshot are None if no snapshot of that prefix is valid."""
    begin = Path(f"{prefix}_iter_")  # not Path(prefix), which would drop a slash at its end
    numbered = []
    for path in begin.parent.glob(f"{glob.escape(begin.name)}*.safetensors"):
        if found := _NUMBER.search(path.name):
            numbered.append((int(found[1]), path))
    rejected: list[str] = []
    for _, path in sorted(numbered, reverse=True):
        try:
            return path, load(path), rejected
        except SnapshotError as error:
            rejected.append(str(error))
    return None, None, rejected


def _read(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """All tensors and the metadata of a file. Raises SnapshotError if the file cannot be read or is not whole."""
    if Path(path).exists() and not Path(path).is_file():  # a folder, or a device that one could read forever
        raise SnapshotError(f"{path}: not a regular file")
    try:
        with open(path, "rb") as readable:  # raises the true error: safetensors calls an unreadable file absent
            size = os.stat(readable.fileno()).st_size
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
            tensors = {name: _tensor(path, file, name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except OSError as error:
        raise SnapshotError(f"{path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise SnapshotError(f"{path}: torn, or no safetensors file ({size} bytes): {error}") from error
    if "minidnn" in metadata:
        try:
            meta = json.loads(metadata["minidnn"])
            version, checksum = meta["version"], meta.pop("checksum")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SnapshotError(f"{path}: corrupt: its metadata cannot be read") from error
        if checksum != _checksum(tensors, meta):
            raise SnapshotError(f"{path}: corrupt: its contents do not have the checksum that it carries")
        if version != VERSION:
            raise SnapshotError(f"{path}: format version {version}; this minidnn reads version {VERSION}")
    return tensors, metadata


def _tensor(path: str | Path, file: Any, name: str) -> np.ndarray:
    """One tensor of an open safetensors file. Raises SnapshotError if NumPy has no type for it."""
    try:
        array = file.get_tensor(name)
        if array.dtype.kind != "V":  # "V": a type of ml_dtypes, if that has been imported
            return array
    except (TypeError, ValueError):  # NumPy has no type for these numbers: BF16, F8_E4M3
        pass
    kind = file.get_slice(name).get_dtype()
    raise SnapshotError(f"{path}: {name} holds {kind} numbers, which NumPy lacks; convert it to F32")


def _checksum(tensors: Mapping[str, np.ndarray], meta: Mapping[str, object]) -> str:
    """The SHA-256, "sha256:<hex>", of the metadata and of all names, types, shapes and bytes."""
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return f"sha256:{digest.hexdigest()}"


def _flush(path: Path) -> None:
    """Make a file's bytes, or a folder's entries, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
