"""The description of the machine that measures."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any


def slug(name: str) -> str:
    """The name in a form that can be part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"


def cpu() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def described() -> dict[str, Any]:
    return {
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
