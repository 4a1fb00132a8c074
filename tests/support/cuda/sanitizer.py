"""The path of AddressSanitizer's run-time library, if there is one."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.cuda import host as cuda_host


def runtime() -> str | None:
    """The path of AddressSanitizer's run-time library, which must be loaded before any other; None without one."""
    if cuda_host.COMPILER is None:
        return None
    command = [cuda_host.COMPILER, "-print-file-name=libasan.so"]
    name = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return name if Path(name).is_absolute() and Path(name).exists() else None


RUNTIME = runtime()
