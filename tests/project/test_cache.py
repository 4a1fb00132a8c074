"""The user's cache: what others may have written is not used, what is damaged is made anew."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from minidnn import visible
from minidnn.files import cache

ANEW = "it is made anew"
CONTENT = random.Random(3).randbytes(9000)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A file in the cache, kept with CONTENT."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    monkeypatch.setattr(cache, "say_once", print)
    path = cache.home() / "native" / "mine.so"
    cache.keep(path, CONTENT, ANEW)
    return path


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_what_is_kept_is_found(path):
    assert cache.kept(path) == CONTENT
    assert cache.kept(path.with_name("none.so")) is None
    cache.keep(path, b"", ANEW)
    assert cache.kept(path) == b""


def test_only_the_user_may_read_or_write_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    before = os.umask(0)
    try:
        cache.keep(cache.home() / "native" / "mine.so", CONTENT, ANEW)
    finally:
        os.umask(before)
    made = [f for f in (tmp_path / "home").rglob("*") if f.is_dir()]
    assert {f.name for f in made} == {"cache", "minidnn", "native"} and {mode(f) for f in made} == {0o700}
    assert mode(cache.home() / "native" / "mine.so") == 0o600
    assert cache.kept(cache.home() / "native" / "mine.so") == CONTENT


@pytest.mark.parametrize("size", [0, 1, 31, 32, 64, 1000, 4096, len(CONTENT) // 2, len(CONTENT), len(CONTENT) + 31])
def test_a_file_that_was_cut_is_not_used(path, size):
    path.write_bytes(path.read_bytes()[:size])
    assert cache.kept(path) is None
    cache.keep(path, CONTENT, ANEW)
    assert cache.kept(path) == CONTENT


def test_a_file_with_another_bit_is_not_used(path):
    whole, any = path.read_bytes(), random.Random(4)
    for _ in range(60):
        bit = any.randrange(8 * len(whole))
        raw = bytearray(whole)
        raw[bit // 8] ^= 1 << bit % 8
        path.write_bytes(raw)
        assert cache.kept(path) is None


def test_a_file_with_the_contents_of_another_is_not_used(path):
    path.rename(path.with_name("yours.so"))
    assert cache.kept(path.with_name("yours.so")) is None


@pytest.mark.parametrize("wrong", [0o666, 0o620, 0o602])
def test_a_file_that_others_may_write_is_not_used(path, wrong):
    path.chmod(wrong)
    assert cache.kept(path) is None
    with pytest.raises(cache.Refused, match=f"other users can write .*mine.so: its mode is {wrong:o}"):
        cache.read(path)
    cache.keep(path, CONTENT, ANEW)
    assert cache.kept(path) == CONTENT and mode(path) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_not_used(path):
    os.chown(path, 65534, -1)
    assert cache.kept(path) is None
    cache.keep(path, CONTENT, ANEW)
    assert cache.kept(path) == CONTENT and path.stat().st_uid == 0


def test_a_folder_of_another_user_is_not_used_and_the_reason_is_told(path, monkeypatch, capsys):
    me = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: me + 1)
    assert cache.kept(path) is None
    cache.keep(path, b"new", ANEW)
    told = capsys.readouterr().out
    assert f"minidnn belongs to the user {me}, not to {me + 1}, who runs this; XDG_CACHE_HOME names another" in told
    monkeypatch.undo()
    assert path.read_bytes().startswith(CONTENT)


@pytest.mark.parametrize("found", [0o755, 0o777])
@pytest.mark.parametrize("above", [0, 1])
def test_a_folder_that_others_may_enter_is_closed(path, found, above):
    folder = path.parents[above]
    folder.chmod(found)
    assert cache.kept(path) == CONTENT and mode(folder) == 0o700


def test_a_folder_that_cannot_be_closed_is_not_used(path, monkeypatch, capsys):
    def fchmod(*_):
        raise PermissionError(1, "no modes here")

    path.parent.chmod(0o777)
    monkeypatch.setattr("os.fchmod", fchmod)
    assert cache.kept(path) is None
    cache.keep(path, CONTENT, ANEW)
    assert "native: its mode is 777" in capsys.readouterr().out
    path.parent.chmod(0o755)
    assert cache.kept(path) == CONTENT, "others may read it, as long as they cannot write to it"


def test_a_link_counts_as_its_owner_and_its_target_do(path, tmp_path, monkeypatch):
    target = path.parent.rename(tmp_path / "elsewhere")
    path.parent.symlink_to(target)
    assert cache.kept(path) == CONTENT
    target.chmod(0o777)
    assert cache.kept(path) is None and mode(target) == 0o777, "what a link names is left as it is"
    target.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(path.parent, 65534, -1, follow_symlinks=False)
        assert cache.kept(path) is None


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_not_used(path, kind):
    moved = path.rename(path.with_name("moved"))
    if kind == "link":
        path.symlink_to(moved)
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    else:
        path.mkdir()
    assert cache.kept(path) is None


def test_a_relative_cache_folder_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "planted")
    assert cache.home() == tmp_path / ".cache" / "minidnn"
    monkeypatch.setenv("XDG_CACHE_HOME", "/absolute")
    assert cache.home() == Path("/absolute/minidnn")


def test_a_line_is_said_once(capsys):
    visible.say_once.cache_clear()
    for _ in range(2):
        visible.say_once("minidnn: a reason")
    assert capsys.readouterr().err == "minidnn: a reason\n"


def test_a_folder_that_the_caller_names_stays_as_it_is(path, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    shared.chmod(0o755)
    cache.keep(shared / "mine.so", CONTENT, ANEW)
    assert cache.kept(shared / "mine.so") == CONTENT and mode(shared) == 0o755
