"""The engine of MPI: messages between the slices themselves, without packing, as persistent requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from minidnn.errors import BadInput
from minidnn.ranks.engine import Engine, Pieces, RankLost

SPINS = 200  # tests of a request before the thread begins to sleep between them
NAP = 2e-5  # seconds


class NoMpi(BadInput, ImportError):
    """mpi4py is missing or does not work here; the message says what to install."""


class Mpi(Engine):
    """The ranks of MPI's world."""

    def __init__(self, limit: float = 300.0) -> None:
        """`limit`: the seconds that a transfer may take. Raises NoMpi."""
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise NoMpi(f"several ranks need mpi4py and an MPI: pip install 'minidnn[mpi]' ({error})") from error
        self._mpi, self._world, self._limit = MPI, MPI.COMM_WORLD.Dup(), limit
        self._hosts = self._world.Dup()  # so that what the hosts say to each other is not taken for a step's bytes
        self.rank, self.ranks = self._world.Get_rank(), self._world.Get_size()
        self._said, self._heard = np.zeros(1, np.int64), np.zeros(self.ranks, np.int64)
        heard = [self._heard[k : k + 1].view(np.uint8) for k in range(self.ranks)]
        said = [[self._said.view(np.uint8)]] * self.ranks
        self._tell = self._transfer(self._hosts, said, [[one] for one in heard])

    def transfer(self, sends: Pieces, receives: Pieces) -> Callable[[], None]:
        return self._transfer(self._world, sends, receives)

    def most(self, value: int) -> int:
        self._said[0] = value
        self._tell()
        return int(self._heard.max())

    def _transfer(self, world: Any, sends: Pieces, receives: Pieces) -> Callable[[], None]:
        requests, own = [], []
        for k in range(self.ranks):
            if k == self.rank:
                own = [(to, source) for to, source in zip(receives[k], sends[k], strict=True) if to.size]
                continue
            for tag, (to, source) in enumerate(zip(receives[k], sends[k], strict=True)):
                if to.size:
                    requests.append((k, world.Recv_init([to, self._mpi.BYTE], k, tag)))
                if source.size:
                    requests.append((k, world.Send_init([source, self._mpi.BYTE], k, tag)))
        pending = [request for _, request in requests]

        def call() -> None:
            self._mpi.Prequest.Startall(pending)
            for to, source in own:
                np.copyto(to, source)
            self._wait(requests, pending)

        return call

    def _wait(self, requests: list[tuple[int, Any]], pending: list[Any]) -> None:
        """Wait for all requests; naps leave the processor to those who compute."""
        done, deadline, tests = self._mpi.Request.Testall, time.monotonic() + self._limit, 0
        while not done(pending):
            tests += 1
            if tests > SPINS:
                time.sleep(NAP)
                if time.monotonic() > deadline:
                    late = sorted({k for k, request in requests if not request.Get_status()})
                    names = ", ".join(map(str, late))
                    raise RankLost(f"rank {self.rank}: nothing from rank {names} within {self._limit:g} s")

    def share(self, value: Any) -> list[Any]:
        return self._hosts.allgather(value)

    def close(self) -> None:
        self._hosts.Free()
        self._world.Free()
