"""A file is replaced whole or kept."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

import pytest

from minidnn.files import replace as files


def test_whole(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with files.replacing(path) as file:
        file.write("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    (tmp_path / "any").touch()
    assert path.stat().st_mode == (tmp_path / "any").stat().st_mode
    (tmp_path / "any").unlink()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("where", ["write", "replace"])
def test_a_write_that_breaks_off_leaves_what_was_there(tmp_path, monkeypatch, where):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    if where == "replace":
        monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"), files.replacing(path, "wb") as file:
        file.write(b"new")
        if where == "write":
            raise OSError("disk full")
    assert [(p, p.read_bytes()) for p in tmp_path.iterdir()] == [(path, b"old")]


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    path = tmp_path / "a.txt"
    left, mine = tmp_path / f".a.txt.0123abcd{files.NEW}", tmp_path / f".a.txt.mine{files.NEW}"
    mine.write_text("not ours: no random number")
    with files.replacing(path) as living:
        left.write_text("half")
        living.write("first")
        with files.replacing(path) as file:
            assert not left.exists() and len(list(tmp_path.iterdir())) == 3
            file.write("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first" and set(tmp_path.iterdir()) == {path, mine}


def test_try_replacing_leaves_nothing(tmp_path):
    files.try_replacing(tmp_path / "a.txt")
    with pytest.raises(OSError, match="No such file"):
        files.try_replacing(tmp_path / "no" / "a.txt")
    with pytest.raises(OSError, match="name too long"):
        files.try_replacing(tmp_path / ("a" * 250))
    assert not list(tmp_path.iterdir())


def test_what_try_replacing_writes_is_no_other_processs_to_remove(tmp_path, monkeypatch):
    """Twenty runs that begin at once on one prefix try and clean up at the same time."""
    unlink, tried = os.unlink, []

    def interrupted(name):
        if not tried:
            tried.append(name)
            files.remove_left(tmp_path, "a.txt")
        unlink(name)

    monkeypatch.setattr(os, "unlink", interrupted)
    files.try_replacing(tmp_path / "a.txt")
    assert tried and not list(tmp_path.iterdir())


def test_a_new_folder_is_flushed_into_the_one_above(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(files, "_flush_folder", flushed.append)
    files.make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir() and flushed == [tmp_path, tmp_path / "a"]
    files.make_folder(tmp_path / "a" / "b")
    assert len(flushed) == 2
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="exists"):
        files.make_folder(tmp_path / "file")


@pytest.mark.parametrize(("number", "raised"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_that_cannot_flush_folders_is_no_error(tmp_path, monkeypatch, number, raised):
    fsync = os.fsync

    def refused(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refused)
    expected = pytest.raises(OSError, match="Input/output") if raised else contextlib.nullcontext()
    with expected, files.replacing(tmp_path / "a.txt") as file:
        file.write("new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_a_folder_that_may_be_written_and_not_read_takes_files(tmp_path, monkeypatch):
    real = os.open

    def refused(path, flags, *rest):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", refused)
    with files.replacing(tmp_path / "a.txt") as file:
        file.write("new")
    assert (tmp_path / "a.txt").read_text() == "new"
