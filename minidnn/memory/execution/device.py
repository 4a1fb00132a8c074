"""The device contract: everything that a machine asks of a backend, in one place.

A backend is a subclass of `Device` that sets the three facts and writes the three methods of the first part. The
methods of the second part have defaults for a device that computes in the host's memory. A device with memory and
streams of its own, or with kernels for fused ops, overrides them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from minidnn.costs import CPU, Rates
from minidnn.errors import Failed
from minidnn.memory.execution.runtime import Call, Runtime
from minidnn.memory.execution.threads import Threads
from minidnn.program import Algorithm, Op, Tensor


class KernelFailed(Failed, RuntimeError):
    """A device refused to run an op. The message names the op and its algorithm, and quotes the refusal."""


class Device:
    """A device that runs ops.

    `memory` is in bytes. `description` names everything that its numbers and its speed depend on, and nothing else: the
    library, its version, threads. Results and snapshots show it.
    """

    name: str
    description: str
    memory: int

    # ---- required

    def algorithms(self, op: Op) -> tuple[Algorithm, ...]:
        """The deterministic ways to compute an op, the default first. Raises NoKernel if there are none."""
        raise NotImplementedError

    def array(self, buffer: np.ndarray, tensor: Tensor) -> np.ndarray:
        """The tensor's elements in logical order (N, C, H, W), as a view of its bytes on the host.

        So a device decides its memory layout here. `buffer`: uint8, `tensor.nbytes` of them. The first axis must be
        outermost in memory: a few rows of a tensor lie as a smaller tensor would.
        """
        raise NotImplementedError

    def prepare(self, op: Op, algorithm: Algorithm, views: Mapping[Tensor, Any], workspace: Any) -> Call:
        """The op bound to its addresses: a call that computes it, or hands it to the compute stream, and allocates
        nothing.

        views:     {tensor: the result of `view`}
        workspace: a slice of the arena with at least as many bytes as the algorithm asks for
        """
        raise NotImplementedError

    # ---- optional

    rates: Rates = CPU  # for estimates of ops that are not measured
    found: str = ""  # for the user of this machine: where the libraries lie, and which are missing
    own_memory: bool = False  # whether the arena lies in the device's own memory, not in the host's

    @property
    def numerics(self) -> str:
        """What the last bits of its numbers depend on. Default: the description. A device on which they do not depend
        on the number of threads leaves it out."""
        return self.description

    def view(self, buffer: Any, tensor: Tensor) -> Any:
        """The tensor's bytes in the arena in the form that `prepare` takes. Default: its array."""
        return self.array(buffer, tensor)

    def beside(self) -> int | None:
        """Bytes of the device's own memory that are taken now and are no arena; None: it has no memory of its own.

        They are the context's, the libraries', kernels' and graphs'. No budget counts them, since they are known only
        once they are there.
        """
        return None

    def compile(self, ops: Iterable[tuple[Op, Algorithm]]) -> None:
        """Make ready what these ops need by these algorithms. It is called before `prepare` is for many of them.
        Default: `prepare` itself does all."""

    def hosts(self, op: Op) -> bool:
        """Whether the host can run this op on its own bytes, and leaves the bits that the device would leave."""
        return not self.own_memory

    def prepare_by_host(self, op: Op, algorithm: Algorithm, arrays: Mapping[Tensor, np.ndarray]) -> Call:
        """The op bound to bytes of the host: a call that computes it, on whichever thread, and allocates nothing.

        arrays: {tensor: the result of `array`}"""
        return self.prepare(op, algorithm, arrays, np.empty(0, np.uint8))

    def fuses(self, op: Op) -> bool:
        """Whether the device has a kernel for this fused op (programs/fusion/). Default: for none."""
        return False

    # A library may list an algorithm and then refuse to run it. Such a device says which algorithms are in doubt, and
    # drops those that were refused. Default: no algorithm is ever refused.

    # costs.key of each dropped algorithm, or of one that has broken the device -> the refusal's message
    refused: Mapping[str, str] = MappingProxyType({})

    def in_doubt(self, op: Op, algorithm: Algorithm) -> bool:
        """Whether this algorithm may be refused: it has not run yet for an op of this geometry."""
        return False

    def drop(self, op: Op, algorithm: Algorithm, refusal: KernelFailed) -> None:
        """List this algorithm no longer for any op of this geometry. Raises `refusal` itself if it is none of the
        algorithm, KernelFailed if the whole device has failed, and BadInput if no algorithm is left for the op."""
        raise refusal

    def usual(self, op: Op) -> Algorithm:
        """The default of `algorithms` if nothing had been dropped."""
        return self.algorithms(op)[0]

    def runtime(self, arena: int, host: int, delays: float = 0.0, seed: int = 0) -> Runtime:
        """`arena` bytes of the device, `host` bytes of the host, and the streams between them.

        Copies are late by up to `delays` seconds at random, a function of `seed`. Default: the host's memory and
        threads.
        """
        return Threads(arena, host, delays, seed)
