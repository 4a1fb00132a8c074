"""NCCL between the FakeApis of one Machine, each on a thread of its own (tests/support/cuda/fake.py).

It stands in for the module cupy.cuda.nccl. A group of sends and receives is one piece of work of its stream. It begins
when it is ready, and ends when all its transfers have. A transfer runs at any time once both sides have begun, so bytes
that are not ready, or that are used too soon, are found by their values. The n-th group of a rank meets the n-th of the
others. What NCCL leaves undefined raises Illegal.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from time import monotonic
from typing import Any, Literal

import numpy as np

from tests.support.cuda.fake import FakeApi, Illegal, Work, _bytes

Move = tuple[Literal["send", "recv"], int, int, int]  # address, bytes, the other rank
_ids = itertools.count(1)


class Ring:
    """The ranks that have met under one id, and what they have posted."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self.joined = ranks, set[int]()
        # (from, to) -> (address, bytes, the group's number, its work), of sends and of receives
        self.posted: dict[str, dict[tuple[int, int], deque]] = {"send": defaultdict(deque), "recv": defaultdict(deque)}
        self.transfers = 0


_rings: dict[bytes, Ring] = {}


@dataclass
class Group:
    """The moves of one group, in the order of their calls."""

    of: Communicator
    moves: tuple[Move, ...]
    begun: bool = False

    def begin(self, work: Work) -> bool:
        """Post the moves. Returns whether the work goes on: its second turn comes when all transfers have ended."""
        c = self.of
        if self.begun:
            c.running = None
            return False
        if c.running is not None:
            raise Illegal("two groups of one communicator at the same time: their streams are not ordered")
        self.begun, c.running, c.groups = True, work, c.groups + 1
        work.missing = len(self.moves)
        for kind, address, nbytes, peer in self.moves:
            ends = (c.rank, peer) if kind == "send" else (peer, c.rank)
            c.ring.posted[kind][ends].append((address, nbytes, c.groups, work))
            self._match(*ends)
        return True

    def _match(self, source: int, to: int) -> None:
        sends, receives = (self.of.ring.posted[kind][source, to] for kind in ("send", "recv"))
        if not (sends and receives):
            return
        (here, sent, group, sender), (there, wanted, other, receiver) = sends.popleft(), receives.popleft()
        if (sent, group) != (wanted, other):
            raise Illegal(
                f"rank {source} sends {sent} bytes to rank {to} in its group {group}, where that one expects {wanted} "
                f"in its group {other}"
            )
        self.of.ring.transfers += 1
        run = partial(np.copyto, _bytes(there, sent), _bytes(here, sent))
        transfer = Work(0, 0, run, (), "transfer", behind=[sender, receiver])
        self.of.api.machine.ready.append(transfer)


class FakeNccl:
    """The module, as one GPU's thread sees it."""

    NCCL_UINT8 = 1

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.open: list[tuple[Communicator, int, Move]] | None = None  # the calls of a group that has not ended

    def get_version(self) -> int:
        return 22707

    def get_unique_id(self) -> bytes:
        return next(_ids).to_bytes(128, "little")

    def NcclCommunicator(self, ranks: int, unique: bytes, rank: int) -> Communicator:
        return Communicator(self, ranks, unique, rank)

    def groupStart(self) -> None:
        if self.open is not None:
            raise Illegal("a group within a group")
        self.open = []

    def groupEnd(self) -> None:
        if self.open is None:
            raise Illegal("the end of a group that did not begin")
        calls, self.open = self.open, None
        if not calls:
            return
        if len({(id(c), stream) for c, stream, _ in calls}) > 1:
            raise Illegal("a group of two communicators, or on two streams")
        communicator, stream, _ = calls[0]
        self.api.communicate(stream, Group(communicator, tuple(move for _, _, move in calls)))


class Communicator:
    def __init__(self, module: FakeNccl, ranks: int, unique: bytes, rank: int) -> None:
        if len(unique) != 128 or not 0 <= rank < ranks:
            raise Illegal("NCCL: invalid argument")
        self.module, self.api, self.rank = module, module.api, rank
        self.running: Work | None = None
        self.groups = 0  # begun so far
        self.failed: Exception | None = None  # what check_async_error raises, if a test sets it
        self.gone = ""
        machine = self.api.machine
        with machine.changed:
            self.ring = _rings.setdefault(unique, Ring(ranks))
            if self.ring.ranks != ranks or rank in self.ring.joined:
                raise Illegal("NCCL: the ranks do not agree")
            self.ring.joined.add(rank)
            machine.changed.notify_all()
            began = monotonic()
            while len(self.ring.joined) < ranks:
                machine.changed.wait(0.01)
                if monotonic() - began > machine.patience:
                    raise Illegal("a rank waits for others to join")

    def send(self, address: int, count: int, type: int, peer: int, stream: int) -> None:
        self._call("send", address, count, type, peer, stream)

    def recv(self, address: int, count: int, type: int, peer: int, stream: int) -> None:
        self._call("recv", address, count, type, peer, stream)

    def _call(self, kind: Any, address: int, count: int, type: int, peer: int, stream: int) -> None:
        self._alive()
        if self.module.open is None:
            raise Illegal(f"a {kind} outside of a group would wait for the other rank")
        if type != FakeNccl.NCCL_UINT8 or not count or not 0 <= peer < self.ring.ranks:
            raise Illegal("NCCL: invalid argument")
        if not any(base <= address and address + count <= base + raw.nbytes for base, raw in self._memory()):
            raise Illegal(f"a {kind} of bytes that are not this GPU's")
        self.module.open.append((self, stream, (kind, address, count, peer)))

    def _memory(self) -> Any:
        return self.api.allocated.items()

    def check_async_error(self) -> None:
        self._alive()
        if self.failed is not None:
            raise self.failed

    def abort(self) -> None:
        self._alive()
        if self._captured() and get_ident() in self.api.threads:
            raise Illegal("an abort would wait for the graphs that hold groups")
        self.gone = "aborted"

    def destroy(self) -> None:
        self._alive()
        if self.running is not None or any(w.group and w.group.of is self for w in self.api.pending):
            raise Illegal("a communicator is destroyed while its groups run")
        if self._captured():
            raise Illegal("a communicator is destroyed before the graphs that hold its groups")
        self.gone = "destroyed"

    def _captured(self) -> bool:
        return any(w.group and w.group.of is self for g in self.api.graphs.values() for w in g.works)

    def _alive(self) -> None:
        if self.gone:
            raise Illegal(f"a communicator that was {self.gone} is used")
