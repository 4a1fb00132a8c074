"""The one value that planning and the simulator know a device by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minidnn.program import Algorithm, Op


@dataclass(frozen=True)
class Choice:
    """One algorithm an op may use, and the seconds one run of it takes."""

    algorithm: Algorithm
    seconds: float


@dataclass(frozen=True)
class Staging:
    """How bytes lie on the host: a ring of pinned memory, and behind it ordinary memory (memory/lowering/staging.py).

    The rates are bytes of a tensor per second of the one thread that does this. They are assumed: some of any CPU of
    the last ten years; a measured step counts what it takes.
    """

    ring: int  # bytes; what travels at once must fit
    compress: bool = False  # what is stashed is packed without its zeros (memory/execution/compression.py)
    copy_rate: float = 6e9
    pack_rate: float = 2e9
    unpack_rate: float = 2e9

    def stash_seconds(self, nbytes: int) -> float:
        return nbytes / (self.pack_rate if self.compress else self.copy_rate)

    def fetch_seconds(self, nbytes: int) -> float:
        return nbytes / (self.unpack_rate if self.compress else self.copy_rate)


@dataclass(frozen=True, eq=False)
class Costs:
    """Everything a policy or the simulator may know about a device.

    `choices(op)` lists the op's algorithms; the first is the default. It never returns an empty tuple.
    """

    device: str
    memory: int  # bytes the device offers
    bandwidth_out: float  # bytes per second, device to host
    bandwidth_in: float  # bytes per second, host to device
    choices: Callable[[Op], tuple[Choice, ...]]
    latency: float = 0.0  # seconds before a copy's first byte
    own_memory: bool = False  # the arena is the device's, and not a part of the host's memory
    origin: str = "given"  # "profile", "measured" or "estimated": what a report says of its seconds
    staging: Staging | None = None  # None: everything that travels has a pinned place of its own

    def seconds(self, op: Op, algorithm: Algorithm) -> float:
        for c in self.choices(op):
            if c.algorithm == algorithm:
                return c.seconds
        raise KeyError(f"{self.device} has no algorithm {algorithm.name} for {op.name}")

    def least_memory(self, op: Op) -> Algorithm:
        """The algorithm of least workspace; among equals the fastest (a paper's "(m)")."""
        return min(self.choices(op), key=lambda c: (c.algorithm.workspace, c.seconds)).algorithm

    def fastest(self, op: Op) -> Algorithm:
        """The fastest algorithm; among equals the one of least workspace (a paper's "(p)")."""
        return min(self.choices(op), key=lambda c: (c.seconds, c.algorithm.workspace)).algorithm


def remembering(choose: Callable[[Op], tuple[Choice, ...]]) -> Callable[[Op], tuple[Choice, ...]]:
    """`choose`, worked out once per op: policies ask many times."""
    known: dict[Op, tuple[Choice, ...]] = {}

    def choices(op: Op) -> tuple[Choice, ...]:
        if op not in known:
            known[op] = choose(op)
        return known[op]

    return choices
