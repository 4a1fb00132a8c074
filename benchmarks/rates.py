"""What this machine does at its best: the rates that are its roof (benchmarks/roof.py).

Measured are, on as many threads as a net is trained with,

- fused multiply-adds in registers, with nothing to wait for (native/roof.c, compiled as our kernels are);
- products of matrices of several sizes, our own, and PyTorch's beside it. None should be quicker; if one is, it counts;
- bytes that are read, written (also past the caches), copied and added to, in memory and in each level of cache.

The fastest of many runs counts, so other programs matter little.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.roof import Level, Roof
from minidnn.backends.cpu import CpuDevice, waits
from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.sources import KERNELS
from minidnn.compiled import Sources
from minidnn.measuring.bench import each
from minidnn.measuring.link import ops
from minidnn.memory.execution.device import Device

RUN, SPENT, FEWEST = 1e-3, 0.2, 5  # seconds of a run at least, of all runs of one kind, and how many runs
SIDES = (512, 1024, 2048)  # rows and columns of the matrices of a product
MEMORY = 256 << 20  # bytes: more than caches hold
STREAMS, PAST = (1, 2, 4), (False, True)  # places that a thread reads at once; whether it writes past the caches
ALIGNED = 64  # bytes: a vector, and a line of cache
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def _options(level: str | None) -> tuple[str, ...]:
    """Those of our kernels. The library's name has a hash of these, and so of the header that it shares with them."""
    return (*KERNELS.options(level), f"-DKERNELS={KERNELS.path().stem[-8:]}")


LOOPS = Sources(Path(__file__).parent / "native", "the loops that measure this machine", _options, lambda: ())


def fastest(run: Callable[[int], object], times: int = 1) -> float:
    """Seconds of a round in the fastest of some runs; `run(rounds)` runs so many. times: as long as others."""
    rounds = 1
    while min(every := [_timed(run, rounds) for _ in range(FEWEST)]) < RUN:  # another program may have had the core
        rounds *= 2
    while sum(every) < SPENT * times:
        every.append(_timed(run, rounds))
    return min(every) / rounds


def _timed(run: Callable[[int], object], rounds: int) -> float:
    began = perf_counter()
    run(rounds)
    return perf_counter() - began


class Loops:
    """The compiled loops, on some threads. Raises NotCompiled."""

    def __init__(self, threads: int) -> None:
        with waits.briefly():
            library = LOOPS.load()
        self.threads, self.products = threads, int(library.roof_products())
        self.multiply_add, self.read, self.write, self.copy, self.add = (
            self._function(library, *shape)
            for shape in (("multiply_add", 0, 2), ("read", 1, 4), ("write", 1, 4), ("copy", 2, 4), ("add", 2, 4))
        )

    @staticmethod
    def _function(library: ctypes.CDLL, name: str, pointers: int, numbers: int) -> Callable[..., None]:
        function = library[f"roof_{name}"]
        function.restype = None
        function.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_int64] * numbers
        return function

    def flops(self) -> float:
        """Operations per second of fused multiply-adds."""
        seconds = fastest(lambda rounds: self.multiply_add(1000 * rounds, self.threads), 5)
        return 2 * 1000 * self.products * self.threads / seconds

    def level(self, held: int | None, nbytes: int) -> Level:
        """The rates of a level that holds `held` bytes, measured with `nbytes` of memory."""
        floats, threads = nbytes // 4, self.threads
        raw = np.empty(nbytes + ALIGNED, np.uint8)
        at = address(raw) + -address(raw) % ALIGNED
        half = nbytes // 2 // ALIGNED * ALIGNED // 4
        self.write(at, floats, 1, threads, False)

        def quickest(run: Callable[..., None], pointers: Sequence[int], count: int, ways: Sequence[int]) -> float:
            """Seconds of the fastest way, each a last argument of `run`."""
            return min(fastest(lambda rounds, way=way: run(*pointers, count, rounds, threads, way)) for way in ways)

        read = nbytes / quickest(self.read, [at], floats, STREAMS)
        written = nbytes / quickest(self.write, [at], floats, PAST)
        copied = 8 * half / quickest(self.copy, [at, at + 4 * half], half, PAST)
        added = 12 * half / quickest(self.add, [at, at + 4 * half], half, STREAMS)
        return Level(held, read, written, max(read, written, copied, added))


def levels(loops: Loops) -> list[Level]:
    """The rates of each level, from the first cache to memory. A cache is measured with as few bytes as the level
    before it cannot hold, for it is quickest with few."""
    held = caches(loops.threads)
    sizes = [size // 2 for size in held[:1]] + [min(2 * inner, size // 2) for inner, size in pairwise(held)]
    return [*map(loops.level, held, sizes), loops.level(None, MEMORY)]


def caches(threads: int, folder: Path = CACHES) -> list[int]:
    """The bytes of each level of cache that so many cores have together; none where the system does not say."""
    found: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            kind, level, size, cores = (
                (index / name).read_text(encoding="utf-8").strip()
                for name in ("type", "level", "size", "shared_cpu_list")
            )
        except OSError:
            continue
        if kind != "Instruction":
            shared = len(cores.replace("-", ",").split(",")) > 1
            found[int(level)] = int(size.removesuffix("K")) * 1024 * (1 if shared else threads)
    return [found[level] for level in sorted(found)]


def own_product(device: Device) -> float:
    """Operations per second of the device's fastest product of square matrices, of all sizes and algorithms."""
    found = [ops(side=side)[1] for side in SIDES]
    wanted = {f"{op.flops} {a.name}": (op, a) for op in found for a in device.algorithms(op)}
    return max(wanted[name][0].flops / taken for name, taken in each(device, wanted) if isinstance(taken, float))


def measured(device: CpuDevice, others: Mapping[str, float] | None = None) -> Roof:
    """The roof of the cores that the device uses. others: products measured elsewhere. Raises NotCompiled."""
    loops = Loops(device.threads or 1)
    rates = {"multiply-add in registers": loops.flops(), "our product": own_product(device), **(others or {})}
    return Roof.of(rates, levels(loops))
