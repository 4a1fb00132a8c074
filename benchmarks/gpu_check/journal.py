"""The journal of results: a JSON line per case, appended as soon as the case is done. A line is written whole or not at
all, even if the process is killed.

A record names the code that made it by a hash of the sources, because the machine may have no git. So a later run knows
which cases it need not run again.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCES = ("minidnn/**/*.py", "minidnn/backends/cuda/kernels/*", "models/*.yaml", "benchmarks/gpu_check/*.py")
SOURCES += ("benchmarks/nets.py", "benchmarks/peer.py")
SOURCES += ("tests/support/**/*.py", "tests/support/nets/*.yaml")  # the examples of ops, the nets of the policies

CODE = "GPU_CHECK_CODE"
TIME = "time of the item"  # a case of each item that only records its seconds
REFUSED = "plans that cuDNN refused to run"  # a case of each item that met some

LATELY = 3.0  # hours that a machine is lent at most, in which the code may change from one run to the next

Record = dict[str, Any]


@cache
def code() -> str:
    """A hash of all files that a result depends on. In an item's process it is the hash when the command began."""
    return os.environ.get(CODE) or digest(SOURCES)


@cache
def digest(patterns: tuple[str, ...]) -> str:
    """A hash of the names and the contents of all files of this tree that match."""
    found = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(p for p in ROOT.glob(pattern) if p.is_file() and not p.parent.is_symlink()):
            found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]


@cache
def commit() -> str | None:
    """git's name of the code; None without git."""
    try:
        asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"]
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


def whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    os.replace(new, path)


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Record) -> Record:
        """Append a record as one line, in one write; it is on disk when this returns.

        If an earlier process left an incomplete line, that is cut off before."""
        record = {"time": round(time.time(), 2), "code": code(), "commit": commit(), **record}
        line = json.dumps(_plain(record), allow_nan=False).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                whole = os.pread(handle, size, 0)
                os.ftruncate(handle, whole.rfind(b"\n") + 1)
            written = os.write(handle, line)
            if written != len(line):
                raise OSError(f"{self.path}: only {written} of {len(line)} bytes were written: is the disk full?")
            os.fsync(handle)
        finally:
            os.close(handle)
        return record

    def __iter__(self) -> Iterator[Record]:
        """All records, oldest first. Damaged lines are skipped."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return
        for line in text.split(b"\n"):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and "item" in record and "case" in record:
                yield record

    def latest(self, any_code: bool = False) -> dict[tuple[str, str], Record]:
        """(item, case) -> its newest result. Only results of this code, unless `any_code`: then also those of other
        code within LATELY hours before the newest."""
        found: dict[tuple[str, str], Record] = {}
        records = [r for r in self if r.get("state") != "began"]
        newest = max((r.get("time", 0.0) for r in records), default=0.0)
        for record in records:
            recent = any_code and record.get("time", 0.0) > newest - 3600 * LATELY
            if recent or record.get("code") == code():
                found.pop((record["item"], record["case"]), None)
                found[record["item"], record["case"]] = record
        return found


def _plain(value: Any) -> Any:
    """`value` with NumPy's numbers as Python's, and numbers that are not finite as text, since JSON has none."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    return value
