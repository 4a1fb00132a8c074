"""A channel without MPI: all ranks connect to the first one, at the address that torchrun names.

It carries a few small values, and the bytes of tensors only between steps. A message holds plain values, arrays, paths,
and errors and records of minidnn, and nothing else is read. So nothing that comes from the network is run.
"""

from __future__ import annotations

import io
import os
import pickle
import socket
import time
from collections.abc import Mapping
from dataclasses import is_dataclass
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from minidnn.errors import BadInput, InvalidInput
from minidnn.ranks.engine import Channel, RankLost

ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"
TAKEN = "TORCHELASTIC_USE_AGENT_STORE"  # if True, torchrun itself listens at MASTER_PORT, and we at the next one
# The package and the name of what an array or a path is pickled with.
OTHERS = {("pathlib", "PosixPath"), *(("numpy", name) for name in ("ndarray", "dtype", "_reconstruct", "scalar"))}
PROTOCOL = 4  # of pickle: another one has arrays in another way
NAP = 0.05  # seconds between two attempts to connect


class NotReached(BadInput, OSError):
    """The first rank cannot listen at its address, or is not reached there."""


def address(environment: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """Where the first rank listens, as the environment says; None if it does not. Raises InvalidInput for a port that
    is none."""
    host, port = environment.get(ADDRESS), environment.get(PORT)
    if not host or not port:
        return None
    number = int(port) + (environment.get(TAKEN) == "True") if port.isdecimal() else 0
    if not 0 < number < 1 << 16:
        raise InvalidInput(f"{PORT}={port}: expected the number of a port")
    return host, number


class Sockets(Channel):
    """This rank's connections: the first one has one with each other rank, and each of these one with the first."""

    def __init__(self, rank: int, ranks: int, at: tuple[str, int], limit: float = 300.0) -> None:
        """limit: the seconds that a rank waits for another. Raises NotReached, and RankLost if a rank does not come."""
        self.rank, self.ranks, self._at, self._limit = rank, ranks, at, limit
        self._sockets: dict[int, socket.socket] = {}
        self._connections: dict[int, Connection] = {}
        self._over = time.monotonic() + limit
        try:
            if rank:
                self._connect()
            else:
                self._accept()
        except BaseException:
            self.close()
            raise

    def _accept(self) -> None:
        host, port = self._at
        try:
            listener = socket.create_server(self._at, backlog=self.ranks)
        except OSError as error:
            raise NotReached(f"rank 0 cannot listen at {host}:{port} ({error}): choose another {PORT}") from error
        with listener:
            while len(self._connections) < self.ranks - 1:
                listener.settimeout(max(self._over - time.monotonic(), 1e-3))
                try:
                    one, _ = listener.accept()
                except TimeoutError:
                    missing = sorted(set(range(1, self.ranks)) - self._connections.keys())
                    raise RankLost(self._late(missing)) from None
                self._greet(one)

    def _greet(self, one: socket.socket) -> None:
        """Take a connection, if one of our ranks has made it: it says which one it is."""
        connection = _over(one)
        try:
            rank = _received(connection) if connection.poll(self._limit) else None
        except (OSError, EOFError, pickle.UnpicklingError):
            rank = None
        if isinstance(rank, int) and 0 < rank < self.ranks and rank not in self._connections:
            self._sockets[rank], self._connections[rank] = one, connection
        else:
            connection.close()
            one.close()

    def _connect(self) -> None:
        host, port = self._at
        while True:
            try:
                one = socket.create_connection(self._at, max(self._over - time.monotonic(), 1e-3))
                break
            except OSError as error:
                if time.monotonic() > self._over:
                    why = f"rank {self.rank} does not reach rank 0 at {host}:{port} within {self._limit:g} s ({error})"
                    raise NotReached(f"{why}: {ADDRESS} has to be an address that all machines reach") from error
                time.sleep(NAP)
        one.settimeout(None)
        self._sockets[0], self._connections[0] = one, _over(one)
        self._send(0, self.rank)

    def share(self, value: Any) -> list[Any]:
        self._over = time.monotonic() + self._limit
        if self.rank:
            self._send(0, value)
            return self._receive(0)
        result = [value, *(self._receive(k) for k in range(1, self.ranks))]
        for k in self._connections:
            self._send(k, result)
        return result

    def check(self) -> None:
        """The first rank knows whose connection has ended, and tells the others."""
        for k, one in self._sockets.items():
            try:
                ended = not one.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except OSError:
                ended = True
            if ended:
                self._end(self._gone(k))
            if self.rank:
                self._receive(0)  # between answers the first rank sends nothing but its end

    def close(self) -> None:
        for k, one in self._sockets.items():
            self._connections[k].close()
            one.close()
        self._connections, self._sockets = {}, {}

    def _send(self, k: int, value: Any) -> None:
        try:
            self._connections[k].send_bytes(pickle.dumps(value, PROTOCOL))
        except OSError:
            self._end(self._gone(k))

    def _receive(self, k: int) -> Any:
        try:
            if not self._connections[k].poll(max(self._over - time.monotonic(), 0)):
                self._end(self._late([k]))
            result = _received(self._connections[k])
        except (OSError, EOFError):
            self._end(self._gone(k))
        if isinstance(result, RankLost):
            raise result
        return result

    def _end(self, why: str) -> NoReturn:
        """Raise RankLost, after the first rank has told the others why."""
        lost = RankLost(why)
        if not self.rank:
            for connection in self._connections.values():
                try:
                    connection.send_bytes(pickle.dumps(lost, PROTOCOL))
                except OSError:
                    continue  # it has ended, too
        raise lost

    def _gone(self, k: int) -> str:
        return f"rank {k} has ended, as rank {self.rank} sees"

    def _late(self, ranks: list[int]) -> str:
        return f"rank {self.rank}: nothing from rank {', '.join(map(str, ranks))} within {self._limit:g} s"


def _over(one: socket.socket) -> Connection:
    return Connection(os.dup(one.fileno()))


class _Values(pickle.Unpickler):
    """Plain values, and what else a message may hold."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.split(".")[0], name) in OTHERS:
            return super().find_class(module, name)
        if module.startswith("minidnn."):
            result = super().find_class(module, name)
            if isinstance(result, type) and (issubclass(result, Exception) or is_dataclass(result)):
                return result
        raise pickle.UnpicklingError(f"a message between ranks holds {module}.{name}")


def _received(connection: Connection) -> Any:
    return _Values(io.BytesIO(connection.recv_bytes())).load()
