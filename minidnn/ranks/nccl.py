"""The engine of NCCL: sends and receives between GPUs, in groups, on a stream of their own.

A call hands its group to the stream and returns. So a captured step has it, too. All else goes by a channel between the
hosts: the id by which the ranks find each other, and values between steps.

A lost rank is noticed when the host waits for its own GPU. Then NCCL is told to give up, since a kernel that waits for
another GPU waits for ever.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from minidnn.errors import BadInput
from minidnn.ranks.engine import Channel, Engine, Pieces, RankLost

NAP = 0.02  # seconds between two looks at a thread
LEAVE = 10.0  # seconds that the ranks have to leave together


class Gpu(Protocol):
    """The part of a GPU's interface that the engine uses (backends/cuda/api.py). Slices of its bytes have an `address`
    and `nbytes`."""

    watch: Callable[[float], object] | None

    def enter(self) -> None: ...

    def bus(self) -> str: ...

    def nccl(self) -> Any: ...

    def allocate(self, nbytes: int) -> int: ...

    def release(self, address: int) -> None: ...

    def synchronize(self, stream: int) -> None: ...


@dataclass(frozen=True)
class Byte:
    """One byte of a GPU."""

    address: int
    nbytes: int = 1


class OneGpu(BadInput, ValueError):
    """Two ranks are to run on one GPU."""


class Nccl(Engine):
    """The ranks of a channel, each with a GPU. `stream`: the GPU's, where transfers are enqueued."""

    def __init__(self, channel: Channel, gpu: Gpu, stream: int, limit: float = 300.0) -> None:
        """limit: the seconds that the host may wait for its GPU. Raises OneGpu, RankLost, and what `gpu.nccl` does."""
        self.rank, self.ranks, self._limit = channel.rank, channel.ranks, limit
        self._channel, self._gpu, self._stream, self._nccl = channel, gpu, stream, gpu.nccl()
        self._lost: str | None = None
        _check_apart(channel.share((socket.gethostname(), gpu.bus())))
        self._communicator = self._joined(channel.share(None if self.rank else self._nccl.get_unique_id())[0])
        gpu.watch = self._watch
        self._meet()

    def _joined(self, unique: Any) -> Any:
        """The communicator. NCCL waits for ever for a rank that does not join."""

        def join() -> Any:
            self._gpu.enter()
            return self._nccl.NcclCommunicator(self.ranks, unique, self.rank)

        joining, over = _Aside(join), time.monotonic() + self._limit
        while joining.is_alive():
            joining.join(NAP)
            self._channel.check()
            if time.monotonic() > over:
                raise RankLost(f"rank {self.rank}: not all ranks have joined NCCL within {self._limit:g} s")
        if joining.failed:
            raise RankLost(f"rank {self.rank}: {_message(joining.failed)}") from joining.failed
        return joining.found

    def _meet(self) -> None:
        """Send a byte to each rank. With it NCCL connects them, and takes its memory before a plan is made."""
        gpu, ranks = self._gpu, range(self.ranks)
        gpu.enter()
        block = gpu.allocate(2 * self.ranks)
        sends, receives = ([[Byte(block + first + k)] for k in ranks] for first in (0, self.ranks))
        self.transfer(sends, receives)()
        gpu.synchronize(self._stream)
        gpu.release(block)

    def transfer(self, sends: Pieces, receives: Pieces) -> Callable[[], None]:
        """The call returns once both directions are enqueued. It raises RankLost if NCCL refuses."""
        c, stream, byte = self._communicator, self._stream, self._nccl.NCCL_UINT8
        parts = [
            (move, part.address, part.nbytes, byte, k, stream)
            for move, pieces in ((c.send, sends), (c.recv, receives))
            for k, some in enumerate(pieces)
            for part in some
            if part.nbytes
        ]

        def call() -> None:
            if self._lost is not None:
                raise RankLost(self._lost)
            try:
                self._nccl.groupStart()
                for move, *arguments in parts:
                    move(*arguments)
                self._nccl.groupEnd()
            except Exception as error:
                raise self._give_up(f"rank {self.rank}: {_message(error)}") from error

        return call

    def share(self, value: Any) -> list[Any]:
        return self._channel.share(value)

    def most(self, value: int) -> int:
        return self._channel.most(value)

    def close(self) -> None:
        """Call it once captured steps that hold transfers are released: NCCL waits for them, and for the other ranks of
        this machine. It does so for LEAVE seconds at most, in case that this rank ends alone."""
        self._gpu.watch = None
        if self._lost is None:
            leaving = _Aside(self._communicator.destroy)
            leaving.join(LEAVE)
            if leaving.failed:
                raise leaving.failed
        self._channel.close()

    def _watch(self, waited: float) -> None:
        """Raise RankLost if what the host has waited for will not come."""
        if self._lost is not None:
            raise RankLost(self._lost)
        try:
            self._channel.check()
            self._communicator.check_async_error()
        except RankLost as error:
            raise self._give_up(str(error)) from error
        except Exception as error:
            raise self._give_up(f"rank {self.rank}: {_message(error)}") from error
        if waited > self._limit:
            raise self._give_up(f"rank {self.rank}: nothing from another rank within {self._limit:g} s")

    def _give_up(self, why: str) -> RankLost:
        self._lost = why
        _Aside(self._communicator.abort)  # kernels end at once, but the call waits for captured steps
        return RankLost(why)


class _Aside(threading.Thread):
    """A call of NCCL that may never return, on a thread of its own, and what came of it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(name="minidnn-nccl", daemon=True)
        self._call = call
        self.found: Any = None
        self.failed: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.found = self._call()
        except Exception as error:
            self.failed = error


def _message(error: Exception) -> str:
    return f"NCCL has failed ({type(error).__name__}: {error}); NCCL_DEBUG=INFO shows more"


def _check_apart(gpus: list[tuple[str, str]]) -> None:
    """gpus: each rank's host, and where its GPU is plugged in."""
    for rank, place in enumerate(gpus):
        if (other := gpus.index(place)) != rank:
            host, bus = place
            raise OneGpu(
                f"ranks {other} and {rank} are both on GPU {bus} of {host}, and each rank needs one of its own: start "
                "fewer ranks there, or let each see another GPU (CUDA_VISIBLE_DEVICES)"
            )
