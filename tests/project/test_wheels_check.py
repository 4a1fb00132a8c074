"""`make wheels-check`: which Pythons it finds, what it lets a stranger's environment have, and how it judges."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from minidnn.compiled import NotCompiled, find_compiler
from release import check
from release.check import GOOD, Row

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def home(tmp_path, monkeypatch):
    """No Python on the PATH, and none of pyenv's or uv's yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


@pytest.mark.parametrize("where", [".pyenv/versions/9.9.1", ".local/share/uv/python/cpython-9.9.1-linux-x86_64-gnu"])
def test_a_python_is_found_behind_a_shim_that_fails(home, where):
    program(home / "bin" / "python9.9", "exit 127")
    assert check.find("9.9") is None
    there = program(home / where / "bin" / "python9.9", "echo 9.9")
    assert check.find("9.9") == str(there)


def test_a_python_that_is_given_goes_first_and_only_for_its_version(home):
    program(home / "bin" / "python9.9", "echo 9.9")
    mine = program(home / "mine", "echo 9.8")
    assert check.find("9.8", [str(mine)]) == str(mine)
    assert check.find("9.9", [str(mine), str(home / "nothing")]) == str(home / "bin" / "python9.9")
    assert check.find(HERE, [sys.executable]) == sys.executable


def test_a_stranger_has_no_compiler_and_pip_keeps_its_settings(tmp_path, monkeypatch):
    for name in ("CC", "PYTHONPATH", "MINIDNN_ONEDNN"):
        monkeypatch.setenv(name, "/usr/bin/cc")
    monkeypatch.setenv("PIP_INDEX_URL", "https://index")
    env = check.surroundings(tmp_path / "home", tmp_path / "bin")
    assert not env.keys() & {"CC", "PYTHONPATH", "MINIDNN_ONEDNN"} and env["PIP_INDEX_URL"] == "https://index"
    monkeypatch.setenv("PATH", env["PATH"])
    monkeypatch.delenv("CC")
    with pytest.raises(NotCompiled, match="needs a C compiler"):
        find_compiler()


def test_what_was_compiled_or_is_not_the_wheel_s_is_bad(tmp_path):
    brought, numpy = "oneDNN is there; our kernels came with the package", "no libdnnl.so.3"
    assert check.judged(brought, tmp_path, True) == check.judged(numpy, tmp_path, False) == GOOD
    assert numpy in check.judged(numpy, tmp_path, True)
    (tmp_path / "minidnn-0.so").touch()
    assert check.judged(brought, tmp_path, True) == "compiled 1 libraries"


def test_the_package_that_is_asked_is_not_the_checkout_s(tmp_path):
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("raise ImportError('the working folder')")
    (tmp_path / "minidnn.py").write_text("raise ImportError('the working folder')")
    try:
        _, told = check.run([sys.executable, *check.DEVICE], folder=tmp_path)
    except check.Bad as error:  # minidnn may be installed here or not
        told = str(error)
    assert "the working folder" not in told


def test_a_failure_is_told_by_its_last_line():
    with pytest.raises(check.Bad, match=r"^it is so$"):
        check.run([sys.executable, "-c", "import sys; sys.exit('first\\nit is so')"])


def test_another_snapshot_is_bad_and_a_python_that_is_not_here_is_not():
    row = Row("3.10", "", GOOD, digest="a")
    slow, other = replace(row, python="3.11", extra="[cpu]", digest="b"), replace(row, python="3.12", digest="b")
    absent = Row("3.14", "", "no such Python here; all dependencies have wheels for it")
    found = check.alike([row, slow, other, absent])
    assert [check.bad(r) for r in found] == [False, False, True, False]
    assert found[2].verdict == "another snapshot than Python 3.10's"
    assert check.bad(Row("3.14", "", "no such Python here, and ERROR: no matching distribution found for numpy"))
