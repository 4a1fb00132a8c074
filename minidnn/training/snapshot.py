"""What a run needs to go on, in one safetensors file `<prefix>_iter_N.safetensors`: whole or absent.

Weights stand under "<layer>/<blob>" in Caffe's blob shapes, so any safetensors reader can use them; optimizer
state under "solver/<tensor>". The header's metadata holds the iteration, the data position, the seed (every
random number is a function of these three) and a checksum of names, shapes and bytes.

Saving writes into a folder `<file>.partial` beside the target, flushes the file to the disk, renames it, and flushes
the folder around it: a crash at any moment leaves the previous snapshots as they were, and what it left half-written is
removed by the next save of that name. The folder is locked meanwhile, so that runs of one prefix take turns. Loading
believes nothing unchecked.
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
_COUNTS = {"iteration": 2**63, "position": 2**63, "seed": 2**64}  # each below this


class SnapshotError(BadInput, ValueError):
    """A file that is no usable snapshot; the message names it and what is wrong."""


class SaveError(Failed, OSError):
    """A snapshot that could not be written; the ones before it are intact."""


@dataclass(frozen=True)
class Snapshot:
    """Everything a run continues from. `weights` are keyed "<layer>/<blob>", `state` by tensor name."""

    weights: Mapping[str, np.ndarray]
    state: Mapping[str, np.ndarray]
    iteration: int
    position: int  # training samples consumed
    seed: int
    facts: Mapping[str, object] = field(default_factory=dict)  # for people and for checks: net, device, algorithms


def path_of(prefix: str | Path, iteration: int) -> Path:
    return Path(f"{prefix}_iter_{iteration}.safetensors")


def save(prefix: str | Path, snapshot: Snapshot) -> Path:
    """Write the snapshot; return its path. Raises SaveError; a file of that name is replaced whole or kept."""
    path = path_of(prefix, snapshot.iteration)
    tensors = {**snapshot.weights, **{STATE + name: array for name, array in snapshot.state.items()}}
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    run = {key: getattr(snapshot, key) for key in ("iteration", "position", "seed")}
    meta = {"version": VERSION, **run, "facts": dict(snapshot.facts)}
    # One entry: safetensors writes several in an order that changes from run to run, and files are to be the same.
    metadata = {"minidnn": json.dumps({**meta, "checksum": _checksum(tensors, meta)}, sort_keys=True)}
    try:
        with _partial(path) as folder:
            written = folder / path.name
            save_file(tensors, written, metadata)  # which gives it to its owner alone
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
    """Raises SaveError if no snapshot of that iteration, a run's last, whose name is the longest, could be written now:
    better before a long run than at its end."""
    path = path_of(prefix, iteration)
    try:
        with _partial(path):
            pass
    except OSError as error:
        what = f"{path}: no snapshot can be written there: {error.filename}: {error.strerror}; name another prefix"
        raise SaveError(what) from error


@contextlib.contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """An empty folder beside `path`, which is made with its parents; gone at the end, with what is left in it."""
    folder = path.with_name(path.name + ".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = _locked(folder)
    try:
        for left in folder.iterdir():  # of a run that was killed
            left.unlink()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(folder: Path) -> int:
    """Make the folder unless it is there, and wait until no other process has it; returns what to close in the end."""
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as undo:  # who had it removed it
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            undo.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
            except OSError as error:  # NFS locks no folders: there, not to share a prefix is the users' care
                if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP):
                    raise
            if os.path.samestat(os.fstat(handle), os.stat(folder)):
                undo.pop_all()
                return handle


def load(path: str | Path) -> Snapshot:
    """A whole snapshot, its checksum verified. Raises SnapshotError."""
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
    """The weights of a snapshot, or of any safetensors file, by "<layer>/<blob>"."""
    return {name: array for name, array in _read(path)[0].items() if not name.startswith(STATE)}


def latest(prefix: str | Path) -> tuple[Path | None, Snapshot | None, list[str]]:
    """The snapshot of most iterations that is whole, and what is wrong with newer ones."""
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
    """All tensors and the metadata of a file that is whole."""
    if Path(path).exists() and not Path(path).is_file():  # a folder, or a device, which might never end
        raise SnapshotError(f"{path}: not a regular file")
    try:
        with open(path, "rb") as readable:  # safetensors calls whatever it may not read absent
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
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SnapshotError(f"{path}: corrupt: its metadata cannot be read") from error
        if checksum != _checksum(tensors, meta):
            raise SnapshotError(f"{path}: corrupt: its contents do not have the checksum that it carries")
        if version != VERSION:
            raise SnapshotError(f"{path}: format version {version}; this minidnn reads version {VERSION}")
    return tensors, metadata


def _tensor(path: str | Path, file: Any, name: str) -> np.ndarray:
    try:
        array = file.get_tensor(name)
        if array.dtype.kind != "V":  # else it is a type of ml_dtypes, where that has been imported
            return array
    except (TypeError, ValueError):  # NumPy has no such numbers: BF16, F8_E4M3
        pass
    kind = file.get_slice(name).get_dtype()
    raise SnapshotError(f"{path}: {name} holds {kind} numbers, which NumPy lacks; convert it to F32")


def _checksum(tensors: Mapping[str, np.ndarray], meta: Mapping[str, object]) -> str:
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
