"""benchmarks/depthwise.py, in small."""

from __future__ import annotations

import json

import pytest

from tests.support.op_examples import compiled
from tests.support.paths import NET_FILES


@pytest.mark.peer("torch")
def test_each_pass_has_each_way_and_ours_is_the_measure(capsys):
    from benchmarks.depthwise import main

    compiled()
    assert main(["--net", str(NET_FILES / "images.yaml"), "--batch", "2", "--rounds", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["ops"] == 5
    )  # three of the depthwise convolution, and of the bilinear deconvolution those that are left
    ways = ["ours", "oneDNN", "PyTorch"]
    rows = [(r["pass"], r["way"]) for r in found["rows"]]
    assert rows == [(p, w) for p in ("forward", "backward_data", "backward_filter", "all") for w in ways]
    assert all(r["seconds"] > 0 and r["low"] <= r["ratio"] <= r["high"] for r in found["rows"])
    assert all(r["ratio"] == 1 for r in found["rows"] if r["way"] == "ours")
