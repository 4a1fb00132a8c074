"""Measures a disk as a machine uses it: direct writes and reads of large tensors, one after the other, and at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from minidnn.memory.execution.disk import DiskFile
from minidnn.memory.execution.threads import page_aligned

TENSOR = 64 * 2**20  # bytes of a tensor
TENSORS = 8  # that a pass moves
PASSES = 3  # whose median counts; the first writes are to blocks that no write has reached, as in a run's first step


@dataclass(frozen=True)
class DiskSpeed:
    """Bytes per second: each direction alone, and each while the other runs, too.

    direct: whether the file system lets them go past its cache; kind: of the file system, such as "ext4"
    """

    write: float
    read: float
    write_beside: float
    read_beside: float
    direct: bool
    kind: str


def disk(folder: Path) -> DiskSpeed:
    """Measure the disk of a folder, in a file of 1 GiB, which is gone then. Raises NoDisk."""
    tensor, tensors, half = TENSOR, TENSORS, TENSOR * TENSORS
    file = DiskFile(folder, 2 * half)
    out, back = page_aligned(tensor), page_aligned(tensor)
    out[:], back[:] = 1, 2

    def seconds(move: Callable[[int], None], at: int) -> float:
        began = perf_counter()
        for k in range(tensors):
            move(at + k * tensor)
        return perf_counter() - began

    write, read = partial(_to, file.write, out), partial(_to, file.read, back)
    try:
        seconds(write, half)
        rates: dict[str, list[float]] = {}
        for _ in range(PASSES):
            rates.setdefault("write", []).append(seconds(write, 0))
            rates.setdefault("read", []).append(seconds(read, half))
            with ThreadPoolExecutor(2) as both:
                one, other = both.submit(seconds, write, 0), both.submit(seconds, read, half)
                rates.setdefault("write_beside", []).append(one.result())
                rates.setdefault("read_beside", []).append(other.result())
        return DiskSpeed(**{k: half / median(v) for k, v in rates.items()}, direct=file.direct, kind=file.kind)
    finally:
        file.close()


def _to(move: Callable[..., None], array: object, at: int) -> None:
    move(array, at, "a tensor")
