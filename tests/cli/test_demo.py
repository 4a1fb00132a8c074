"""`minidnn demo` as a newcomer runs it: in a folder of its own, without a checkout."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from minidnn.backends.cpu.onednn import library
from minidnn.cli import demo
from minidnn.cli.main import _parser, main
from minidnn.cli.options import given
from minidnn.training import comparison


@pytest.fixture
def folder(tmp_path, own_cache, monkeypatch):
    """An empty working folder. Policies are compared by few steps."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(comparison, "STEPS", (8, 8))
    monkeypatch.setattr(comparison, "STARTS", 1)
    return tmp_path / "here"


@pytest.fixture
def short(folder, monkeypatch):
    """A solver that trains for two iterations."""
    Path("short.yaml").write_text(
        "net: digits_lenet.yaml\nbase_lr: 0.02\nlr_policy: fixed\nmax_iter: 2\ntest_iter: 1\nrandom_seed: 3\n"
    )
    monkeypatch.setattr(demo, "SOLVER", "short.yaml")
    return folder


@pytest.mark.extended
def test_it_shows_the_same_bytes_within_less_memory(folder, capsys):
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    files = {name: (folder / demo.FOLDER / name) for name in ("baseline", "vdnn_all")}
    ends = [path.with_name(f"{name}_iter_250.safetensors").read_bytes() for name, path in files.items()]
    assert ends[0] == ends[1]
    assert "<svg" in (folder / demo.FOLDER / demo.REPORT).read_text()
    assert [path.name for path in folder.iterdir()] == [demo.FOLDER]
    needs, allowed = re.findall(r"baseline:m needs ([\d.]+ MiB), the budget is ([\d.]+ MiB)", " ".join(out.split()))[0]
    summary = out.split("\n\n")[-1]
    assert f"needs      {needs}" in summary and f"allowed    {allowed}" in summary
    assert f"report     {demo.FOLDER}/{demo.REPORT}" in summary


def shown(out: str) -> list[list[str]]:
    """The commands that are printed, in words."""
    return [shlex.split(line)[1:] for line in out.splitlines() if line.startswith("   $ ")]


@pytest.mark.extended
def test_it_shows_the_commands_that_do_the_same(short, monkeypatch, capsys):
    monkeypatch.setattr(demo, "WANTED", 0)
    assert main(["demo", "--out", "mine"]) == 0
    free, refused, within, same, compared = shown(capsys.readouterr().out)
    assert same[0] == "cmp" and all(Path(file).is_file() for file in same[1:])
    asked = [(args.verb, given(args)) for args in (_parser(words[1:]).parse_args(words[1:]) for words in
             (free, refused, within, compared))]  # fmt: skip
    budget = 5 << 19
    assert [verb for verb, _ in asked] == ["train", "train", "train", "compare"]
    assert [values.get("policy") for _, values in asked] == ["baseline:m", "baseline:m", "vdnn_all:m", None]
    assert [values.get("budget") for _, values in asked] == [None, budget, budget, budget]
    before = [Path(file).read_bytes() for file in same[1:]]
    assert main(free[1:]) == 0 and main(refused[1:]) == 2 and main(within[1:]) == 0
    assert [Path(file).read_bytes() for file in same[1:]] == before


def test_a_net_that_has_learned_too_little_is_a_failure(short, capsys):
    assert main(["demo"]) == 1
    assert re.search(r"^minidnn: [\d.]+% of the test images are recognized, fewer than 97%$", capsys.readouterr().err)


def test_other_bytes_are_a_failure(short, monkeypatch, capsys):
    monkeypatch.setattr(demo, "WANTED", 0)
    train = demo._train

    def spoiled(**keywords):
        result = train(**keywords)
        if "budget" in keywords:
            result.file.write_bytes(result.file.read_bytes()[:-1])
        return result

    monkeypatch.setattr(demo, "_train", spoiled)
    assert main(["demo"]) == 1
    assert "differ" in capsys.readouterr().err


def test_a_slow_device_is_told_with_what_makes_it_quick(monkeypatch, capsys):
    monkeypatch.setattr(library, "candidates", lambda: [])
    monkeypatch.delenv(library.VARIABLE, raising=False)
    demo._tell_device()
    assert re.search(r"slow.*\n.*no libdnnl.so.3 .*`pip install onednn-cpu-gomp", capsys.readouterr().out)


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_refused(folder, out, capsys):
    Path("file").touch()
    assert main(["demo", "--out", out]) == 2
    said = capsys.readouterr()
    assert said.err == f"minidnn: --out {out}: there is a file; name a folder, or one that can be made\n"
    assert not said.out
