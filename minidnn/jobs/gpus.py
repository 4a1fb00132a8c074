"""The GPU that is simulated (a known one, a file, or the one at hand), and the host's memory that plans may use.

Nobody has endless host memory, so a plan without a host budget has one, too: this machine's memory, or for a GPU that
is simulated as much as is usual beside one.
"""

from __future__ import annotations

from minidnn import costs, sizes
from minidnn.costs import GPU
from minidnn.costs.profiles import going, parted
from minidnn.memory.execution.host import physical_memory

HERE = "here"  # the name of the GPU at hand
HOST = 64 * 2**30  # bytes of the host's memory that are assumed beside a GPU that is simulated


def named(name: str) -> str:
    """The one name by which a GPU is known from here on. Raises ProfileError if there is no such GPU."""
    return name if parted(name)[0] == HERE else costs.named(name)


def gpu(name: str) -> GPU:
    """The profile of that name; HERE is this machine's GPU, and takes its driver alone.

    Raises ProfileError, and CudaUnavailable if this machine has no GPU."""
    base, way = parted(name)
    if base != HERE:
        return costs.gpu(name)
    from minidnn.backends.cuda.at_hand import at_hand

    return going(at_hand(), way, base)


def host_memory(name: str | None) -> int:
    """Bytes of the host that plans may use if nobody says how many. name: the GPU that is simulated, or None"""
    own = None if name is None else gpu(name).host_memory
    if own is not None:
        return sizes.parse(own.value)
    return physical_memory() if name is None or parted(name)[0] == HERE else HOST
