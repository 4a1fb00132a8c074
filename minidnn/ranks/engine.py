"""The contract of an engine, which moves bytes between ranks, and what its two operations send to whom.

An engine has three methods of its own. `transfer` prepares a call once, which a step makes again and again. All ranks
make equal calls in the same order. A channel is the part of an engine that goes between the hosts alone. No call waits
without a limit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minidnn.errors import Failed
from minidnn.program import Op

Pieces = Sequence[Sequence[Any]]  # for each rank, slices of bytes
LIMIT = 300.0  # seconds that a rank waits for another
PIECE = 64 << 20  # bytes that a rank shares at once


class RankLost(Failed, RuntimeError):
    """Another rank has not answered in time, or has ended. The message names it."""


class Channel(ABC):
    """`ranks` processes, of which this is number `rank`."""

    rank: int
    ranks: int

    @abstractmethod
    def share(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank, between steps. Raises RankLost."""

    def most(self, value: int) -> int:
        """The largest of all ranks' values, between steps. Raises RankLost."""
        return max(self.share(value))

    def check(self) -> None:  # noqa: B027  (an engine may know nothing)
        """Raise RankLost if another rank is known to have ended."""

    @abstractmethod
    def close(self) -> None: ...


class Engine(Channel):
    """Moves the bytes of a program's tensors.

    waited: seconds that this rank's calls have lasted, waiting and moving; the rank that others wait for has least. 0
            where calls run on a device"""

    waited = 0.0

    @abstractmethod
    def transfer(self, sends: Pieces, receives: Pieces) -> Callable[[], None]:
        """A call that sends `sends[k]` to each rank k, and receives `receives[k]` from it.

        Rank a sends b as many slices, of the same bytes, as b expects from a. The call returns when both directions are
        done, or enqueued on the device's stream of communications. It raises RankLost."""

    def whole(self, own: np.ndarray, nbytes: int) -> np.ndarray:
        """The first `nbytes` of all ranks' bytes, one rank after the other, on the host and between steps. Raises
        RankLost."""
        result = np.empty(nbytes, np.uint8)
        for at in range(0, own.nbytes, PIECE):
            for k, piece in enumerate(self.share(own[at : at + PIECE].tobytes())):
                to = result[k * own.nbytes + at :][: len(piece)]
                to[:] = np.frombuffer(piece, np.uint8)[: to.size]
        return result

    def prepare(self, op: Op, reads: Sequence[np.ndarray], writes: Sequence[np.ndarray]) -> Callable[[], None]:
        """The call that does a communication of a program. The arrays are the bytes of its tensors."""
        sends: list[list[np.ndarray]] = [[] for _ in range(self.ranks)]
        receives: list[list[np.ndarray]] = [[] for _ in range(self.ranks)]
        all_to_all = op.kind == "net.all_to_all"  # else "net.all_gather"
        for read, write, x, y in zip(op.reads, op.writes, reads, writes, strict=True):
            each = write.nbytes // self.ranks if all_to_all else read.nbytes  # of a shard
            whole = read.nbytes if all_to_all else write.nbytes
            own = _part(whole, each, self.rank)
            for k in range(self.ranks):
                part = _part(whole, each, k)
                if all_to_all:  # each rank gets its shard of every rank's x, in rows of y
                    sends[k].append(x[part])
                    receives[k].append(y[k * each : k * each + own.stop - own.start])
                else:  # each rank's shard x becomes its part of every rank's y
                    sends[k].append(x[: own.stop - own.start])
                    receives[k].append(y[part])
        return self.transfer(sends, receives)


def _part(whole: int, each: int, rank: int) -> slice:
    """The bytes of this rank's shard, of so many in all."""
    return slice(min(rank * each, whole), min((rank + 1) * each, whole))
