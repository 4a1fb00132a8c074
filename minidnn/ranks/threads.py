"""An engine of threads in one process, for tests: ranks copy from each other's bytes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from minidnn.ranks.engine import Engine, Pieces, RankLost


class Group:
    """The ranks that meet. `limit`: seconds after which a rank that waits alone gives up."""

    def __init__(self, ranks: int, limit: float = 60.0) -> None:
        self.ranks, self.limit = ranks, limit
        self.met = threading.Barrier(ranks)
        self.given: list[Any] = [None] * ranks

    def engine(self, rank: int) -> Threads:
        return Threads(self, rank)


class Threads(Engine):
    """One rank of a group."""

    def __init__(self, group: Group, rank: int) -> None:
        self._group, self.rank, self.ranks = group, rank, group.ranks

    def transfer(self, sends: Pieces, receives: Pieces) -> Callable[[], None]:
        def call() -> None:
            began = time.perf_counter()
            for k, theirs in enumerate(self._all(sends)):
                for to, source in zip(receives[k], theirs[self.rank], strict=True):
                    np.copyto(to, source)
            self._meet()  # sent bytes stay until all ranks have them
            self.waited += time.perf_counter() - began

        return call

    def share(self, value: Any) -> list[Any]:
        result = list(self._all(value))
        self._meet()
        return result

    def _all(self, value: Any) -> list[Any]:
        self._group.given[self.rank] = value
        self._meet()
        return self._group.given

    def _meet(self) -> None:
        try:
            self._group.met.wait(self._group.limit)
        except threading.BrokenBarrierError:
            raise RankLost(f"rank {self.rank}: another rank has not come within {self._group.limit:g} s") from None

    def close(self) -> None:
        """Let no rank wait for this one."""
        self._group.met.abort()
