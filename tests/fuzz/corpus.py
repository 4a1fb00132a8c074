"""The corpus: a folder of each kind, and a file of each case that once broke a promise, or might have.

`make test` tries them all, and `make fuzz` adds those that it finds.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

FOLDER = Path(__file__).with_name("corpus")


def cases(kind: str) -> list[Path]:
    """The files of one kind."""
    return sorted(path for path in (FOLDER / kind).glob("*") if path.is_file())


def add(kind: str, case: bytes, folder: Path = FOLDER) -> Path:
    """Keep a case. Its name is that of its bytes; rename it by what it shows."""
    path = folder / kind / hashlib.sha256(case).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(case)
    return path
