"""Completion: the command itself tells a shell what may come next, from its parsers and its tables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minidnn.cli.completion import NAMES, SHELLS
from minidnn.cli.main import main
from minidnn.cli.verbs import VERBS
from minidnn.memory.policies import POLICIES
from tests.support.slow import usual_are

LINES = {  # {what is typed: (words that are offered, words that are not)}
    "minidnn tr": ({"train"}, {"tune"}),
    "minidnn plan lenet --po": ({"--policy", "--policies"}, {"--report"}),
    "minidnn compare lenet --policies best,vdnn_a": ({"best,vdnn_all", "best,vdnn_all:m"}, {"vdnn_all"}),
    "minidnn reproduce vdn": ({"vdnn", "vdnnpp"}, {"layrub"}),
    "minidnn train lenet --set lr_p": ({"lr_policy="}, {"base_lr=", "solver_type="}),
    "minidnn train lenet --set lr_policy=s": ({"lr_policy=step", "lr_policy=sigmoid"}, {"lr_policy=fixed"}),
    "minidnn plan models/digits": ({"models/digits_lenet.yaml"}, {"models/generate.py"}),
}


def offered(line: str, folder: Path) -> set[str]:
    found = folder / "found"
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(found), "_ARGCOMPLETE_IFS": "\n"}
    asked |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    command = [sys.executable, "-m", "minidnn"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return set(found.read_text().split())


@pytest.mark.parametrize("line", usual_are([*LINES][2::2], LINES))
def test_a_shell_gets_what_may_come_next(line, tmp_path):
    pytest.importorskip("argcomplete")
    words, others = LINES[line]
    there = offered(line, tmp_path)
    assert words <= there and not others & there


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_gets_its_script(shell, capsys):
    argcomplete = pytest.importorskip("argcomplete")
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out.splitlines() == argcomplete.shellcode(["minidnn"], shell=shell).splitlines()


def test_without_the_package_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'minidnn[completion]'" in capsys.readouterr().err


def test_names_are_those_of_the_tables(monkeypatch):
    monkeypatch.setitem(POLICIES, "mine", POLICIES["liveness"])
    policies, _ = NAMES["policy"]
    assert {"mine", "mine:m", "best"} <= set(policies()) and "best:m" not in policies()
    for names, _ in NAMES.values():
        assert len(list(names())) > 2


def test_a_known_shell_is_asked_for(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["completion", "bsh"])
    assert "there is no 'bsh' (did you mean 'bash'?)" in capsys.readouterr().err and "completion" in VERBS
