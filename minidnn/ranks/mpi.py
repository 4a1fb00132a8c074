"""The engine of MPI: messages between the slices themselves, without packing, as persistent requests."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from minidnn.errors import BadInput
from minidnn.ranks.engine import LIMIT, Engine, Pieces, RankLost

SPINS = 200  # tests of a request before the thread begins to sleep between them
NAP = 2e-5  # seconds
SHARED = 1 << 14  # the tag of shared values; those of transfers count from 0


class NoMpi(BadInput, ImportError):
    """mpi4py is missing or does not work here; the message says what to install."""


class Mpi(Engine):
    """The ranks of MPI's world."""

    def __init__(self, limit: float = LIMIT) -> None:
        """`limit`: the seconds that a call may take. Raises NoMpi."""
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise NoMpi(f"several ranks need mpi4py and an MPI: pip install 'minidnn[mpi]' ({error})") from error
        _end_all_with_errors(MPI)
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
        began, tests = time.monotonic(), 0
        while not self._test(pending):
            tests += 1
            if tests > SPINS:
                time.sleep(NAP)
                if time.monotonic() > began + self._limit:
                    late = sorted({k for k, request in requests if not request.Get_status()})
                    names = ", ".join(map(str, late))
                    raise RankLost(f"rank {self.rank}: nothing from rank {names} within {self._limit:g} s")
        self.waited += time.monotonic() - began

    def _test(self, pending: list[Any]) -> bool:
        try:
            return bool(self._mpi.Request.Testall(pending))
        except self._mpi.Exception as error:
            raise RankLost(f"rank {self.rank}: another rank has ended ({error})") from error

    def share(self, value: Any) -> list[Any]:
        own = np.frombuffer(pickle.dumps(value), np.uint8)
        self.most(own.size)
        result = [np.empty(size, np.uint8) for size in self._heard.tolist()]
        result[self.rank] = own
        byte, requests = self._mpi.BYTE, []
        for k in range(self.ranks):
            if k != self.rank:
                requests.append((k, self._hosts.Irecv([result[k], byte], k, SHARED)))
                requests.append((k, self._hosts.Isend([own, byte], k, SHARED)))
        self._wait(requests, [request for _, request in requests])
        return [pickle.loads(one.tobytes()) for one in result]

    def close(self) -> None:
        self._hosts.Free()
        self._world.Free()


@cache
def _end_all_with_errors(mpi: Any) -> None:
    """An error that nobody catches ends all ranks: else MPI's own end would wait for the others for ever."""
    before = sys.excepthook

    def hook(*error: Any) -> None:
        before(*error)
        sys.stderr.flush()
        mpi.COMM_WORLD.Abort(1)

    sys.excepthook = hook
