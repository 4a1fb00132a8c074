"""A limit of memory for one case: who takes more is told, and the machine stays usable.

Memory counts that has been written to. An allocation that alone is twice as large fails, with MemoryError in Python.
"""

from __future__ import annotations

import contextlib
import re
import resource
from collections.abc import Iterator
from pathlib import Path

MEMORY = 1 << 30  # bytes that a case may add to what the process had before


@contextlib.contextmanager
def memory(most: int = MEMORY) -> Iterator[None]:
    """Raises MemoryError if more bytes than that are in use at some time, beyond those of now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 2 * most
    if before[1] != resource.RLIM_INFINITY:
        limit = min(limit, before[1])
    with contextlib.suppress(OSError):  # where it is forbidden, an earlier peak may hide one
        Path("/proc/self/clear_refs").write_text("5")
    first, peak = _bytes("VmRSS"), _bytes("VmHWM")
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    if (after := _bytes("VmHWM")) > max(peak, first + most):
        raise MemoryError(f"{after - first} bytes were in use")


def _bytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return 1024 * int(found[1]) if found else 0
