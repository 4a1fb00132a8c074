"""One case tried: in an empty folder, under the limit of memory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.fuzz import limits
from tests.fuzz.kind import Kind, inside, silent


def attempt(kind: Kind, case: bytes, folder: Path) -> bool:
    """Whether the case is accepted. Raises what its check raises."""
    with inside(folder):
        try:
            with limits.memory(), silent():
                return kind.check(case, folder)
        finally:
            empty(folder)


def empty(folder: Path) -> None:
    """Remove all in it that a case has left."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
