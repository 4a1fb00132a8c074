"""The file behind the host's memory: its bytes, its ends, and what goes wrong."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from minidnn.memory.execution import disk
from minidnn.memory.execution.disk import DiskFailed, DiskFile, NoDisk
from minidnn.memory.execution.threads import page_aligned
from minidnn.memory.schedule import BLOCK


def block(seed: int, blocks: int = 3) -> np.ndarray:
    found = page_aligned(blocks * BLOCK)
    found[:] = np.random.default_rng(seed).integers(0, 256, found.size, np.uint8)
    return found


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "PIECE", BLOCK)
    found = DiskFile(tmp_path, 8 * BLOCK)
    yield found
    found.close()


def test_bytes_come_back_in_pieces_and_no_file_has_a_name(file, tmp_path):
    a, b, back = block(1), block(2), page_aligned(3 * BLOCK)
    file.write(a, 0, "a")
    file.write(b, 4 * BLOCK, "b")
    assert not list(tmp_path.iterdir())
    for want, at in ((a, 0), (b, 4 * BLOCK)):
        file.read(back, at, "x")
        assert back.tobytes() == want.tobytes()


def test_a_file_system_without_nameless_files_has_one_that_is_unlinked_at_once(tmp_path, monkeypatch):
    real = os.open

    def without(path, flags, *more, **named):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no")
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", without)
    file = DiskFile(tmp_path, BLOCK)
    assert not list(tmp_path.iterdir())
    file.close()


def test_a_file_system_without_direct_io_is_used_and_told_once(tmp_path, monkeypatch, capsys):
    real = os.open

    def buffered(path, flags, *more, **named):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no")
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", buffered)
    for _ in range(2):
        file = DiskFile(tmp_path, 4 * BLOCK)
        assert not file.direct
        file.write(block(1), 0, "a")
        file.close()
    assert capsys.readouterr().err.count("has no direct I/O") == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_disk_without_room_is_refused_with_the_numbers(number, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(NoDisk, match=r"the plan needs 16.0 KiB there, .* free \(.*host_budget"):
        DiskFile(tmp_path, 4 * BLOCK)


def test_a_folder_that_cannot_be_written_is_refused():
    with pytest.raises(NoDisk, match='/proc": cannot create a file there'):
        DiskFile(Path("/proc"), BLOCK)


def test_short_writes_and_reads_go_on(file, monkeypatch):
    for name in ("pwritev", "preadv"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda f, v, at, real=real: real(f, [v[0][: max(512, len(v[0]) // 2)]], at))
    a, back = block(1), page_aligned(3 * BLOCK)
    file.write(a, 0, "a")
    file.read(back, 0, "a")
    assert back.tobytes() == a.tobytes()


@pytest.mark.parametrize("way", ["write", "read"])
def test_a_failure_names_the_tensor_the_offset_and_the_reason(way, file, monkeypatch):
    def fails(f, views, at):
        if at == 5 * BLOCK:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return len(views[0])

    monkeypatch.setattr(os, f"p{way}v", fails)
    with pytest.raises(DiskFailed, match=f"a {way} of 4.00 KiB of conv1.y at offset 20480 failed: Input/output error"):
        getattr(file, way)(block(1), 4 * BLOCK, "conv1.y")


def test_the_child_of_a_fork_has_a_file_of_its_own(file):
    a, back = block(1), page_aligned(3 * BLOCK)
    file.write(a, 0, "a")
    if not (child := os.fork()):
        try:
            file.write(block(2), 0, "a")
            file.read(back, 0, "a")
            os._exit(0 if back.tobytes() == block(2).tobytes() else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    file.read(back, 0, "a")
    assert back.tobytes() == a.tobytes()
