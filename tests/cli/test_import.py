"""--import: a module of one's own is imported before the net is read, and its mistakes are told with their place."""

from __future__ import annotations

import re
import sys

import pytest

from minidnn.cli.main import _parser, main
from minidnn.cli.verbs import VERBS
from minidnn.layers import LAYERS
from minidnn.memory.policies import POLICIES
from tests.support.paths import ROOT
from tests.support.texts import NET

FAR = ROOT / "docs" / "journeys" / "researcher.py"
LAYER = """
from dataclasses import dataclass
from minidnn.layers import LAYERS
from minidnn.layers.relu import ReLU
class Mine(ReLU):
    type = "Mine"
LAYERS["Mine"] = Mine
"""
WRONG = {  # {module: (its text, what is said of it)}
    "a.py": ("import nosuch_module", "a.py:1: ModuleNotFoundError: No module named 'nosuch_module'"),
    "b.py": ("x = 1\ny = x[0]", "b.py:2: TypeError: 'int' object is not subscriptable"),
    "c.py": ("\ndef f(:", "c.py:2: SyntaxError: invalid syntax"),
    "d.py": ("import sys\nsys.exit(3)", "d.py:2: SystemExit: 3"),
    "e.py": ("\nimport inner", "inner.py:3: KeyError: 'x'"),
    "f.py": ("import json\njson.loads('x')", r"f.py:2: JSONDecodeError: Expecting value: .*"),
    "json.py": ("", re.escape("there is another module json, of ") + r".*json/__init__\.py: rename the file"),
    "nosuch.py": (None, "there is no such file"),
    "nosuch": (None, r"there is no module nosuch \(a file's path ends in \.py\)"),
    "package.nosuch": (None, r"there is no module package\.nosuch \(a file's path ends in \.py\)"),
    "./a": (None, r"neither a module's name nor a path that ends in \.py"),
}


@pytest.fixture
def folder(tmp_path, own_cache, monkeypatch):
    """A working folder; what is imported from there, and entered in tables, is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    tables = [(table, dict(table)) for table in (POLICIES, LAYERS)]
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith((str(tmp_path), str(FAR.parent))):
            del sys.modules[name]
    for table, old in tables:
        table.clear()
        table.update(old)


@pytest.mark.parametrize("named", ["path", "module"])
def test_a_policy_is_found(folder, capsys, monkeypatch, named):
    (folder / "far.py").write_text(FAR.read_text())
    words = ["plan", "lenet", "--gpu", "k40", "--policy", "far:m"]
    assert main(words) == 2
    assert "there is no policy 'far'" in capsys.readouterr().err
    assert main([*words, "--import", {"path": "far.py", "module": "far"}[named]]) == 0
    assert re.search(r"^ far:m +yes ", capsys.readouterr().out, re.MULTILINE)


def test_a_layer_is_known_before_the_net_is_read(folder, capsys):
    (folder / "net.yaml").write_text(NET.replace("type: ReLU", "type: Mine"))
    (folder / "layer.py").write_text(LAYER)
    assert main(["show", "net.yaml"]) == 2
    assert "Mine" in capsys.readouterr().err
    assert main(["show", "net.yaml", "--import", "layer.py", "--import", "layer.py"]) == 0
    assert " Mine " in capsys.readouterr().out


@pytest.mark.parametrize("module", WRONG)
def test_what_is_wrong_is_told_in_a_line_with_its_place(folder, capsys, module):
    text, says = WRONG[module]
    (folder / "inner.py").write_text("table = {}\n\ntable['x']\n")
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").touch()
    if text is not None:
        (folder / module).write_text(text + "\n")
    assert main(["show", "lenet", "--import", module]) == 2
    assert re.fullmatch(f"minidnn: --import {re.escape(module)}: {says}\n", capsys.readouterr().err)


def test_the_line_that_a_refusal_names_imports_it_too(folder, capsys):
    (folder / "far.py").write_text(FAR.read_text())
    words = ["lenet", "--gpu", "k40", "--policies", "far:m", "--budget", "1MiB", "--import", "far.py"]
    assert main(["plan", *words]) == 2
    assert "--budget 1MiB --gpu k40 --import far.py --policy NAME` says" in capsys.readouterr().out


def test_all_verbs_that_read_nets_have_it():
    without = {verb for verb in VERBS if "--import" not in option_names(verb)}
    assert without == {"demo", "pack", "reproduce", "devices", "completion"}


def option_names(verb):
    (verbs,) = (action.choices for action in _parser([verb])._actions if isinstance(action.choices, dict))
    return verbs[verb]._option_string_actions
