"""The memory of this machine, or of the container around this process."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

M_MMAP_THRESHOLD, LARGE = -3, 1 << 20  # mallopt(3): a parameter, and its value in bytes


def physical_memory() -> int:
    """Bytes of RAM of this machine, or the limit of its container if that is less."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
    except OSError:
        return memory
    return min(memory, int(limit)) if limit.isdigit() else memory


def resident_memory() -> int:
    """Bytes of this process that lie in RAM now; 0 where the system does not say (it is Linux that does)."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def release_freed() -> None:
    """Give back to the system what this process has freed and the C library keeps for itself (glibc does)."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def return_large() -> None:
    """Let the C library (glibc) give each large block back to the system as soon as it is freed, from now on. Else it
    keeps some for later, in each thread: batches that nobody has any more."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)


def free_memory() -> int:
    """Bytes that this process may still take, about, on this machine or in its container."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, StopIteration, ValueError):  # Linux; the page cache counts as available
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    with contextlib.suppress(OSError, ValueError):  # a container's limit; "max" is not a number
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text(encoding="utf-8"))
        available = min(available, limit - int((group / "memory.current").read_text(encoding="utf-8")))
    return available
