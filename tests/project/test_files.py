"""A file is replaced whole or kept."""

from __future__ import annotations

import os

import pytest

from minidnn import files


def test_whole(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with files.replacing(path) as file:
        file.write("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o666 & ~files._umask(), "as any file that one writes"
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
