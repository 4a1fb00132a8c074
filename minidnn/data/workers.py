"""Processes that make samples ahead of the step, in memory that they share with the parent.

They are forks of the parent: any dataset works there, and none is copied. The shared memory has no name, so that
nothing is left of it when all processes have ended, however they did. It holds SLOTS batches. One is read by the
parent, the others are being made. A batch is divided into tasks of a few samples; the next free worker takes the next
task. Which worker makes a sample changes nothing of it.

A worker ignores Ctrl-C and its like. It ends when the parent closes it, or when the parent has ended. While the parent
waits, it looks whether the workers go from sample to sample. If none has for a while, all end, and an error says so.
"""

from __future__ import annotations

import contextlib
import gc
import math
import mmap
import os
import pickle
import select
import signal
import socket
import struct
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait

import numpy as np

from minidnn.data.dataset import DataError
from minidnn.errors import Failed
from minidnn.spoken import option

SLOTS = 3  # batches in shared memory
TASK = 8  # samples of a task at most
PRIVATE = 32 << 20  # bytes that a worker takes for itself, measured on JPEGs of 256 x 256
LIMIT = 60.0  # seconds in which some worker must begin or end a sample
_LOOK = 0.5  # seconds between two looks at the workers
_ALIGN = 64
_HEAD = struct.Struct("<qqqq")  # of a task: slot, whether samples are raw, place of the first in the batch, its number
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NONE = -1


class WorkerError(Failed, RuntimeError):
    """A worker process ended, does not answer, or met an error that is not the data's; the message names the sample."""


@dataclass(frozen=True)
class Staging:
    """How a batch lies in a slot: its samples, either as the net reads them or raw, then its labels."""

    batch: int
    made: tuple[int, ...]  # shapes: of a sample as the net reads it, float32
    raw: tuple[int, ...]  # of a raw one
    raw_type: str
    labels: tuple[int, ...]  # of the labels of a sample, int32

    @property
    def _labels_at(self) -> int:
        most = max(4 * math.prod(self.made), np.dtype(self.raw_type).itemsize * math.prod(self.raw))
        return -(-self.batch * most // _ALIGN) * _ALIGN

    @property
    def slot(self) -> int:
        """Bytes of a slot."""
        return -(-(self._labels_at + 4 * self.batch * math.prod(self.labels)) // _ALIGN) * _ALIGN

    def nbytes(self, workers: int) -> int:
        """Bytes of shared memory: the slots, and for each worker the number of the sample that it makes."""
        return SLOTS * self.slot + 8 * workers

    def views(self, memory: mmap.mmap, slot: int, raw: bool) -> tuple[np.ndarray, np.ndarray]:
        """The samples (batch, ...) and the labels (batch, ...) in a slot."""
        shape, dtype = (self.raw, np.dtype(self.raw_type)) if raw else (self.made, np.dtype(np.float32))
        at, count = slot * self.slot, self.batch * math.prod(shape)
        samples = np.frombuffer(memory, dtype, count, at).reshape(self.batch, *shape)
        count = self.batch * math.prod(self.labels)
        labels = np.frombuffer(memory, np.int32, count, at + self._labels_at).reshape(self.batch, *self.labels)
        return samples, labels


# (number, index, whether it stays raw, samples and labels to write to, the place there)
Make = Callable[[int, int, bool, np.ndarray, np.ndarray, int], None]


class Workers:
    """So many processes, and the batches that they make."""

    def __init__(
        self,
        count: int,
        staging: Staging,
        make: Make,
        indices: Callable[[np.ndarray], np.ndarray],
        where: Callable[[int], str],
        limit: float = LIMIT,
    ) -> None:
        """`make` writes one sample, in a worker. `indices`: sample numbers -> indices, in the parent. `where`: words
        for a sample, by its index. `limit`: seconds in which some worker must begin or end a sample. Raises DataError
        if the processes or their memory are not to be had."""
        self._staging, self._make, self._indices, self._where = staging, make, indices, where
        self._limit, self._silent, self._seen = limit, 0.0, b""  # seconds without a change, and what did not change
        self._task = max(1, min(TASK, staging.batch // (2 * count)))
        self._free = list(range(SLOTS))
        self._asked: deque[tuple[int, bool, int]] = deque()  # (position, raw, slot) of batches that are being made
        self._handed: int | None = None  # the slot that the caller reads
        self._left = [0] * SLOTS  # tasks of each slot that are not done
        self._errors: list[tuple[int, Exception] | None] = [None] * SLOTS  # (place in the batch, error) of the first
        self._ended: WorkerError | None = None
        self._replies: list[Connection] = []
        self._pids: dict[Connection, int] = {}
        try:
            self._memory = mmap.mmap(-1, staging.nbytes(count))
            self._making = np.frombuffer(self._memory, np.int64, count, SLOTS * staging.slot)
            self._making[:] = _NONE
            self._tasks, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._close = weakref.finalize(self, _end, os.getpid(), self._pids, self._tasks)
            for worker in range(count):
                self._fork(worker, theirs)
            theirs.close()
        except OSError as error:
            raise DataError(f"{count} workers cannot be started: {error.strerror or error}") from error

    def take(self, position: int, raw: bool) -> tuple[np.ndarray, np.ndarray]:
        """The samples and the labels of the batch at this position; they stay so until the next call. The following
        batches are begun. Raises what making it raised in a worker, and WorkerError if a worker has ended."""
        if self._handed is not None:
            self._free.append(self._handed)
            self._handed = None
        if self._asked and self._asked[0][:2] != (position, raw):
            while self._asked:
                self._finished()
        following = position + len(self._asked) * self._staging.batch
        while self._free:
            self._ask(following, raw)
            following += self._staging.batch
        slot, error = self._finished()
        if error is not None:
            raise error
        self._free.remove(slot)
        self._handed = slot
        return self._staging.views(self._memory, slot, raw)

    def close(self) -> None:
        """End the processes."""
        self._close()

    def _ask(self, position: int, raw: bool) -> None:
        """Begin the batch at this position, in a free slot."""
        slot, batch = self._free.pop(0), self._staging.batch
        indices = self._indices(np.arange(position, position + batch)).astype(np.int64)
        self._asked.append((position, raw, slot))
        self._errors[slot] = None
        for first in range(0, batch, self._task):
            self._left[slot] += 1
            try:
                self._send(
                    _HEAD.pack(slot, raw, first, position + first) + indices[first : first + self._task].tobytes()
                )
            except OSError:  # no worker is left to take it; to wait for a reply says why
                self._left[slot] = 1
                return

    def _send(self, task: bytes) -> None:
        """Give the workers a task. Raises OSError if none is left, and WorkerError if none takes any."""
        while True:
            try:
                self._tasks.send(task, socket.MSG_DONTWAIT)
                return
            except BlockingIOError:
                if not select.select([], [self._tasks], [], _LOOK)[1]:
                    self._look()

    def _finished(self) -> tuple[int, Exception | None]:
        """Wait for the batch that was asked for first; its slot, which is free then, and the error of its first sample
        that could not be made."""
        if self._ended is not None:
            raise self._ended
        _, _, slot = self._asked[0]
        while self._left[slot]:
            if not (ready := wait(self._replies, _LOOK)):
                self._look()
            for reply in ready:
                self._silent = 0.0
                assert isinstance(reply, Connection)
                try:
                    of, place, error = pickle.loads(reply.recv_bytes())
                except (EOFError, ConnectionError):
                    raise self._dead(reply) from None
                self._left[of] -= 1
                first = self._errors[of]
                if error is not None and (first is None or place < first[0]):
                    self._errors[of] = place, error
        self._asked.popleft()
        self._free.append(slot)
        result = self._errors[slot]
        return slot, result[1] if result else None

    def _look(self) -> None:
        """Count the seconds in which no worker went on. It is called each so many seconds of waiting, and counts these:
        those of a parent that was suspended do not count. Raises WorkerError if they are too many."""
        now = self._making.tobytes()
        self._silent = self._silent + _LOOK if now == self._seen else 0.0
        self._seen = now
        if self._silent < self._limit:
            return
        busy = next((i for i, number in enumerate(self._making) if number != _NONE), 0)
        what = f"a worker process (pid {self._pids[self._replies[busy]]}) did not answer for {self._limit:g} s"
        why = "it was suspended, or waited for something"
        longer, without = option("worker_limit", 2.0 * self._limit), option("workers", 0)
        remedy = f"{longer} waits longer, and {without} uses no processes"
        self._ended = WorkerError(f"{what}, {self._place(busy)}: {why}; {remedy}")
        self.close()
        raise self._ended

    def _place(self, worker: int) -> str:
        """What this worker did when it was last seen."""
        number = int(self._making[worker])
        if number == _NONE:
            return "between two samples"
        return f"while it made {self._where(int(self._indices(np.array([number]))[0]))}"

    def _dead(self, reply: Connection) -> WorkerError:
        """The error that says how the worker of this pipe ended, and at which sample. All others end, too."""
        place, how = self._place(self._replies.index(reply)), "for an unknown reason"
        with contextlib.suppress(ChildProcessError):  # someone else has waited for it
            _, status = os.waitpid(self._pids.pop(reply), 0)
            code = os.waitstatus_to_exitcode(status)
            how = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
            how += ", perhaps because memory ran out" if code == -signal.SIGKILL else ""
        self._ended = WorkerError(f"a worker process ended {place} ({how})")
        self.close()
        return self._ended

    # ---- a worker

    def _fork(self, worker: int, tasks: socket.socket) -> None:
        ours, theirs = Pipe(duplex=False)
        self._replies.append(ours)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)  # no handler of the parent may run in the child
        try:
            if pid := os.fork():
                self._pids[ours] = pid
                theirs.close()
                return
            try:
                for number in _IGNORED:
                    signal.signal(number, signal.SIG_IGN)
                self._tasks.close()  # else a worker would not see that the parent has ended
                for reply in self._replies:
                    reply.close()
                gc.freeze()  # to look through the parent's objects would copy their pages
                with contextlib.suppress(EOFError, ConnectionError):
                    self._serve(worker, tasks, theirs)
                os._exit(0)
            finally:
                os._exit(1)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _serve(self, worker: int, tasks: socket.socket, replies: Connection) -> None:
        """Do tasks until the parent closes their socket."""
        most = _HEAD.size + 8 * self._task
        while task := tasks.recv(most):
            slot, raw, first, number = _HEAD.unpack_from(task)
            samples, labels = self._staging.views(self._memory, slot, bool(raw))
            place, error = first, None
            for k, index in enumerate(np.frombuffer(task, np.int64, -1, _HEAD.size).tolist()):
                self._making[worker] = number + k
                try:
                    self._make(number + k, index, bool(raw), samples, labels, first + k)
                except Exception as raised:
                    place, error = first + k, _sent(raised, self._where(index))
                    break
            self._making[worker] = _NONE
            replies.send_bytes(pickle.dumps((slot, place, error)))


def _sent(error: Exception, where: str) -> Exception:
    """The error for the parent: itself if it is the data's fault, which its message tells; else a WorkerError."""
    if isinstance(error, DataError):
        return DataError(*error.args)
    return WorkerError(f"{where}: {type(error).__name__}: {error}")


def _end(owner: int, pids: dict[Connection, int], tasks: socket.socket) -> None:
    """Kill the workers, which have nothing to save, and wait for them; in a fork of their parent only forget them."""
    tasks.close()
    for reply, pid in pids.items():
        reply.close()
        if os.getpid() == owner:
            os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):  # someone else has waited for it
                os.waitpid(pid, 0)
    pids.clear()
