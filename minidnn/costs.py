"""What ops and copies cost: seconds and workspace per (op, algorithm), link bandwidths, device memory.

Values only. A Costs is measured on a machine (study/measure.py), or predicted from a GPU profile
(`gpus/*.yaml`, a roofline; see docs/costs.md for how the profiles were fitted).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minidnn.program import Algorithm, Op


@dataclass(frozen=True)
class Choice:
    """One algorithm an op may use, and the seconds one run of it takes."""

    algorithm: Algorithm
    seconds: float


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
    measured: bool = False

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
