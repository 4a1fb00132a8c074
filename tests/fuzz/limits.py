"""A limit of memory for one case: an allocation beyond it fails with MemoryError, and the machine stays usable."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

MEMORY = 1 << 30  # bytes that a case may add to what the process had before


@contextlib.contextmanager
def memory(more: int = MEMORY) -> Iterator[None]:
    """Allow so many bytes of address space more than the process has now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    if before[1] != resource.RLIM_INFINITY:
        limit = min(limit, before[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
