"""Without PyTorch, its name and how to get it."""

from __future__ import annotations

import sys

from minidnn.cli.main import main
from minidnn.torch.installed import torch_module


def test_without_pytorch_it_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "train.py").write_text("def make():\n    return None\n")
    monkeypatch.setitem(sys.modules, "torch", None)
    torch_module.cache_clear()
    assert main(["plan", str(tmp_path / "train.py:make"), "--torch"]) == 2
    assert capsys.readouterr().err == "minidnn: PyTorch is not installed: pip install 'minidnn[torch]'\n"


def test_names_of_the_package_need_no_pytorch():
    import minidnn.torch

    assert callable(minidnn.torch.plan) and callable(minidnn.torch.search)
    assert {"plan", "frontier", "cards", "search", "board", "compare", "compile"} <= set(dir(minidnn.torch))
