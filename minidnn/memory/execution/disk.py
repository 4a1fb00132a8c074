"""A file on a disk behind the host's memory: direct reads and writes of whole blocks, by threads of its own.

The file has no name from the start (O_TMPFILE; where a file system lacks that, it is unlinked as soon as it is made).
So nothing is left of it, whatever ends the process. Its bytes are reserved before anything runs: no write can find the
disk full. It is opened for direct I/O, which takes no memory for a cache. A file system without direct I/O is used all
the same, with a note on stderr.

Two threads run the schedule's streams "store" and "load", so writes and reads overlap. Each splits a tensor into
requests of PIECE bytes and has DEPTH of them under way at a time. A request that fails ends all streams at their next
wait, so no kernel computes with bytes that never came.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np

from minidnn.errors import BadInput, Failed
from minidnn.memory.execution.threads import page_aligned
from minidnn.memory.schedule import BLOCK
from minidnn.sizes import text
from minidnn.spoken import option
from minidnn.visible import say_once

PIECE = 16 * 2**20  # bytes of a request; a multiple of BLOCK
DEPTH = 2  # requests of one direction under way at a time
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
IN_MEMORY = ("tmpfs", "ramfs")


class NoDisk(BadInput):
    """A folder where no file for tensors can be made, or none so large. The message names the folder and the reason."""


class DiskFailed(Failed):
    """A write or a read failed within a step. The message names the folder, the tensor, the offset and the reason."""


class StateLost(Failed):
    """After a step that failed, the disk did not give back the weights from before it either. So there are none to
    save."""


class DiskFile:
    """`nbytes` of a disk, in a file without a name in `folder`. Raises NoDisk.

    direct: whether reads and writes go past the system's cache
    kind:   of the file system, such as "ext4"; "" where the system does not say

    The child of a fork gets a file of its own at its first access: nothing lies there from step to step.
    """

    def __init__(self, folder: Path, nbytes: int) -> None:
        self.folder, self.nbytes = folder, nbytes
        self._open()
        if self.kind in IN_MEMORY:
            say_once(f"minidnn: {option('disk', str(folder))} is a {self.kind}, which lies in this machine's memory")

    def _open(self) -> None:
        self._process = os.getpid()
        self._pools = {way: ThreadPoolExecutor(DEPTH, f"minidnn-disk-{way}") for way in ("write", "read")}
        try:
            self.direct = self._create(os.O_DIRECT)
            if not self.direct:
                self._create(0)
                what = "the file system has no direct I/O, so its cache takes memory that no budget counts"
                say_once(f"minidnn: {self._named}: {what}")
        except OSError as error:
            if error.errno in FULL:
                raise self._full(error) from None
            raise NoDisk(f"{self._named}: cannot create a file there: {error.strerror}") from None

    def _create(self, flags: int) -> bool:
        """Make the file and reserve its bytes. False: the file system has no direct I/O, which `flags` ask for."""
        try:
            self._file = _nameless(self.folder, flags)
        except OSError as error:
            if flags and error.errno == errno.EINVAL:
                return False
            raise
        try:
            os.posix_fallocate(self._file, 0, max(self.nbytes, BLOCK))
            if not flags or _takes_blocks(self._file):
                return True
        except OSError:
            os.close(self._file)
            raise
        os.close(self._file)
        return False

    @property
    def _named(self) -> str:
        return option("disk", str(self.folder))

    @property
    def kind(self) -> str:
        return _file_system(self._file)

    def _full(self, error: OSError) -> NoDisk:
        free = "as much as the system allows"
        with contextlib.suppress(OSError):
            result = os.statvfs(self.folder)
            free = text(result.f_bavail * result.f_frsize)
        budgets = f"{option('host_budget')}, {option('budget')}"
        return NoDisk(
            f"{self._named}: the plan needs {text(self.nbytes)} there, but {free} are free "
            f"({error.strerror}): name a folder on another disk, keep more in memory ({budgets}), or take a smaller "
            "batch"
        )

    def write(self, source: np.ndarray, at: int, name: str) -> None:
        """Write `source` (uint8, page-aligned, whole blocks), a tensor called `name`, at offset `at`. Raises
        DiskFailed."""
        self._each("write", os.pwritev, source, at, name)

    def read(self, target: np.ndarray, at: int, name: str) -> None:
        """Read `target`, likewise."""
        self._each("read", os.preadv, target, at, name)

    def _each(self, way: str, move: Callable[..., int], array: np.ndarray, at: int, name: str) -> None:
        if self._process != os.getpid():
            self._open()

        def request(first: int) -> None:
            part, done = array[first : first + PIECE], 0
            while done < len(part):
                try:
                    moved = move(self._file, [part[done:].data], at + first + done)
                    if not moved:
                        raise OSError(errno.EIO, "nothing was moved")
                except OSError as error:
                    raise DiskFailed(
                        f"{self._named}: a {way} of {text(len(part) - done)} of {name} at offset "
                        f"{at + first + done} failed: {error.strerror}"
                    ) from error
                done += moved

        if len(array) <= PIECE:
            request(0)
            return
        requests = [self._pools[way].submit(request, first) for first in range(0, len(array), PIECE)]
        wait(requests)  # all of them, since the caller may use the bytes afterwards
        for one in requests:
            one.result()

    def close(self) -> None:
        """Give the bytes back. No step may be in flight."""
        if self._process == os.getpid() and self._file >= 0:
            for pool in self._pools.values():
                pool.shutdown()
            os.close(self._file)
            self._file = -1


def _nameless(folder: Path, flags: int) -> int:
    """The descriptor of a new file without a name."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
    descriptor, path = tempfile.mkstemp(prefix="minidnn-", dir=folder)
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | flags)
    finally:
        os.close(descriptor)
        os.unlink(path)


def _takes_blocks(file: int) -> bool:
    """Whether a block can be written and read directly: some file systems want larger ones."""
    block = page_aligned(BLOCK)
    block.fill(0)
    try:
        return os.pwritev(file, [block.data], 0) == os.preadv(file, [block.data], 0) == BLOCK
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        raise


def _file_system(file: int) -> str:
    """The type of the file system that the file is on, such as "ext4"; "" where the system does not say."""
    device = os.fstat(file).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError, IndexError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            if line.split()[2] == wanted:
                return line.partition(" - ")[2].split()[0]
    return ""
