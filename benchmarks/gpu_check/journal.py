"""What was found, a JSON line a case, appended as soon as it is there: whole or not at all, whenever the process ends.

Records name the code they were found with (a hash of the sources, because the machine may have no git), so that a
later run knows what it need not do again.
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
TIME = "time of the item"  # a case of each that is no check

LATELY = 3.0  # hours: a loan of a machine, in which code is mended between one run and the next

Record = dict[str, Any]


@cache
def code() -> str:
    """A fingerprint of all that a result depends on: in an item's process, as it was when the command began."""
    if given := os.environ.get(CODE):
        return given
    found = hashlib.sha256()
    for pattern in SOURCES:
        for path in sorted(p for p in ROOT.glob(pattern) if p.is_file() and not p.parent.is_symlink()):
            found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]


@cache
def commit() -> str | None:
    """git's name of the code, where there is git."""
    try:
        asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"]
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Record) -> Record:
        """One write of one line, on disk when this returns. What a former process left of a line is cut off before."""
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
        """All records, the oldest first; lines that are damaged are no records."""
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
        """(item, case) -> its newest outcome; of this code alone, unless any of the last LATELY hours will do."""
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
    """NumPy's numbers as Python's; what is not finite as text, because JSON has no word for it."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    return value
