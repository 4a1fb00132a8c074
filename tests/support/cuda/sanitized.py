"""Runs every example by kernels that are compiled with AddressSanitizer and UndefinedBehaviorSanitizer.

Each tensor is in an allocation of just its size. tests/backends/cuda/test_sanitized.py runs this program with
AddressSanitizer loaded first. It prints how many examples it ran.

    python tests/support/cuda/sanitized.py KIND ...
    python tests/support/cuda/sanitized.py --overrun | --misaligned | --overflow    commits a fault that must be found
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np

from minidnn.backends.reference import KERNELS
from minidnn.program import Op, Pass, Tensor
from tests.support.cuda import host as cuda_host
from tests.support.cuda.host import HostCuda, tolerance
from tests.support.cuda.op_examples import all_examples
from tests.support.op_examples import Example, expected

LARGEST = 200_000  # elements; larger examples are left out, since they would take minutes
libc = ctypes.CDLL(None)
libc.posix_memalign.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
libc.free.argtypes = (ctypes.c_void_p,)


class Alone:
    """Allocations that end where their tensors end, so that an overrun is found."""

    def __init__(self) -> None:
        self.addresses: list[int] = []

    def bytes(self, nbytes: int) -> np.ndarray:
        if not nbytes:
            return np.empty(0, np.uint8)
        address = ctypes.c_void_p()
        assert libc.posix_memalign(ctypes.byref(address), 256, nbytes) == 0
        self.addresses.append(address.value)
        array = np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address.value), np.uint8)
        array[...] = 0xFF
        return array

    def free(self) -> None:
        for address in self.addresses:
            libc.free(address)


def check(device: HostCuda, e: Example, together: bool) -> None:
    want = expected(KERNELS, e)
    for algorithm in device.algorithms(e.op):
        alone = Alone()
        taken = {}
        for read, write in e.op.inplace if together else ():
            if write not in taken and read not in taken.values():
                taken[write] = read
        views = {t: device.array(alone.bytes(t.nbytes), t) for t in e.op.tensors if t not in taken}
        for write, read in taken.items():
            views[write] = views[read].reshape(write.shape)
        for t, value in e.data.items():
            views[t][...] = value
        device.prepare(e.op, algorithm, views, alone.bytes(algorithm.workspace))()
        for t, w in zip(e.op.writes, want, strict=True):
            limit = 0 if e.exact else tolerance(algorithm) * max(1.0, float(np.abs(w).max(initial=0)))
            assert np.all(np.abs(views[t] - w.astype(np.float64)) <= limit), f"{e.name}: {t.name} by {algorithm}"
        del views
        alone.free()


def examples(kinds: set[str]) -> None:
    device, counts = HostCuda(sanitize=True), dict.fromkeys(kinds, 0)
    for e in all_examples():
        if e.op.kind in kinds and sum(t.size for t in e.op.tensors) <= LARGEST:
            for together in (False, True) if e.op.inplace else (False,):
                check(device, e, together)
            counts[e.op.kind] += 1
    assert all(counts.values()), counts
    print("ran", sum(counts.values()), "examples of", len(counts), "kinds")


def fault(which: str) -> None:
    """Commit a fault that the sanitizers must stop, to show that they are active."""
    x, y = Tensor("x", (101,)), Tensor("y", (101,))
    op = Op("copy", "identity.forward", "layer", Pass.FORWARD, (x,), (y,))
    device, alone = HostCuda(sanitize=True), Alone()
    views = {t: device.array(alone.bytes(t.nbytes), t) for t in (x, y)}
    (recipe,) = device.recipes(op)
    (launch,) = recipe.steps
    lib = cuda_host.library(launch.source, sanitize=True)
    address = [views[t].ctypes.data for t in (x, y)]
    size = 101
    if which == "--overrun":
        size = 102
    elif which == "--misaligned":
        address[0] += 4
        size = 4
    elif which == "--overflow":
        size = (1 << 63) - 1
        address = [0, 0]
    print("calls", flush=True)
    lib.bind(launch.kernel, [*address, np.int64(size)], 1, 256, 0, False)()


if __name__ == "__main__":
    if sys.argv[1].startswith("--"):
        fault(sys.argv[1])
    else:
        examples(set(sys.argv[1:]))
