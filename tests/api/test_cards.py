"""Which GPU is enough: one line for each profile, from small to large, and a plan within its memory."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from minidnn.api import cards
from minidnn.cli.main import main
from minidnn.costs import gpu, profile
from minidnn.costs.roofline import Bytes
from minidnn.jobs import gpus

KIB = 1024


@pytest.mark.slow
def test_a_small_net_fits_everywhere(capsys):
    asked = ["k40", "RTX 3060", "4090", "orin"]
    assert main(["cards", "lenet", "--batch", "8", "--gpus", ",".join(asked), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {r["gpu"] for r in rows} == {"k40", "rtx3060", "rtx4090", "orin"}
    assert [r["memory_bytes"] for r in rows] == sorted(profile(name).memory for name in asked)
    assert {r["gpu"]: r["host_budget_bytes"] for r in rows if r["gpu"] in ("k40", "orin")} == {
        "k40": 64 * 2**30, "orin": 30 * 2**30
    }  # fmt: skip
    for r in rows:
        assert r["fits"] and r["lossless"] and r["bound_seconds"] <= r["step_seconds"] * (1 + 1e-9)
        assert r["free_seconds"] <= r["step_seconds"]  # a plan that fits is one for endless memory, too
        assert r["samples_per_second"] == pytest.approx(8 / r["step_seconds"])
    assert main(["cards", "lenet", "--batch", "8", "--gpus", ",".join(asked)]) == 0
    assert f"The smallest GPU with enough memory is {rows[0]['gpu']}." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        (
            {"k40": 12000, "v100": 7000},
            "The smallest GPU with enough memory is v100.\nThe smallest on which memory costs",
        ),
        pytest.param(
            {"k40": 7100, "v100": 7000},
            "On each of these GPUs, a step takes longer than with unlimited memory.",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"k40": 200, "v100": 100}, "No GPU has enough memory: the leanest plan takes", marks=pytest.mark.slow
        ),
    ],
)
def test_the_smallest_that_is_enough(memory, says, capsys, monkeypatch):
    monkeypatch.setattr(cards, "known", lambda: list(memory))
    small = {name: replace(gpu(name), memory=Bytes(f"{kib}KiB", "of this test")) for name, kib in memory.items()}
    monkeypatch.setattr(gpus, "gpu", lambda name: small.get(name) or gpu(name))
    assert main(["cards", "cifar10_quick", "--batch", "32"]) == 0
    assert says in capsys.readouterr().out
