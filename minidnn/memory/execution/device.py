"""The device contract: all that a machine asks of a backend, in one place.

A backend is a subclass of `Device` that sets the three facts and writes the three methods of the first part. The
methods of the second part have a default that is right for a device whose memory is the host's; a device that has
memory and streams of its own, or kernels for fused ops, overrides them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minidnn.costs import CPU, Rates
from minidnn.memory.execution.runtime import Call, Runtime
from minidnn.memory.execution.threads import Threads
from minidnn.program import Algorithm, Op, Tensor


class Device:
    """What runs ops. `memory` is in bytes; `description` names all that its numbers and its speed depend on, and
    nothing else: the library, its version, threads. Results and snapshots show it."""

    name: str
    description: str
    memory: int

    # ---- required

    def algorithms(self, op: Op) -> tuple[Algorithm, ...]:
        """The deterministic ways to compute an op, the default first. Raises NoKernel where there is none."""
        raise NotImplementedError

    def array(self, buffer: np.ndarray, tensor: Tensor) -> np.ndarray:
        """The tensor's elements in logical order (N, C, H, W), over its bytes on the host: `buffer`, uint8 of
        `tensor.nbytes`. So this is where a device's memory layout is decided."""
        raise NotImplementedError

    def prepare(self, op: Op, algorithm: Algorithm, views: Mapping[Tensor, Any], workspace: Any) -> Call:
        """The op bound to its addresses: a call that computes it, or hands it to the compute stream, and allocates
        nothing. `views`: what `view` made of each tensor; `workspace`: a slice of the arena, at least as many bytes as
        the algorithm asks for."""
        raise NotImplementedError

    # ---- optional

    rates: Rates = CPU  # for an estimate of what is not measured
    found: str = ""  # for the user of this machine: where the libraries lie, and what is missing
    own_memory: bool = False  # whether the arena is the device's, and not a part of the host's memory

    def view(self, buffer: Any, tensor: Tensor) -> Any:
        """The tensor over its bytes in the arena, as `prepare` takes it. Default: its array."""
        return self.array(buffer, tensor)

    def fuses(self, op: Op) -> bool:
        """Whether there is a kernel for this fused op (programs/fusion.py). Default: for none."""
        return False

    def runtime(self, arena: int, host: int, delays: float = 0.0, seed: int = 0) -> Runtime:
        """`arena` bytes of the device, `host` bytes of the host, and the streams between them. Copies are late by up
        to `delays` seconds at random, a function of `seed`. Default: the host's memory and threads."""
        return Threads(arena, host, delays, seed)
