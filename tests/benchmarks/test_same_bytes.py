"""benchmarks/same_bytes.py: nets trained under `best` end with the bytes of baseline, and the script sees when not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from benchmarks import same_bytes, snapshots
from minidnn.costs import estimate
from minidnn.memory import policies
from minidnn.memory.policies.shared.in_parts import in_parts
from tests.support.paths import NET_FILES


def estimated(device, program, tell):
    return estimate(device)


def rows(net: str, budgets: int) -> list[dict]:
    return list(same_bytes.rows(str(NET_FILES / f"{net}.yaml"), None, 1, budgets, 2, estimated, lambda *told: None))


@pytest.mark.slow
def test_best_ends_with_the_bytes_of_baseline_under_the_least_budget_and_the_largest():
    least, most = rows("residual", 2)
    assert (least["different"], most["different"]) == ([], [])
    assert least["same"] and most["same"]
    assert least["peak_bytes"] < most["peak_bytes"]


@pytest.mark.slow
def test_another_end_is_seen(monkeypatch, capsys):
    real = same_bytes.trained
    ends = []

    def trained(session, steps):
        end = real(session, steps)
        name = min(end.values)
        ends.append(name)
        return replace(end, values=end.values | {name: "other"}) if len(ends) == 1 else end

    monkeypatch.setattr(same_bytes, "trained", trained)
    monkeypatch.setattr(same_bytes, "measured", estimated)
    assert same_bytes.main(["--networks", str(NET_FILES / "chain.yaml"), "--budgets", "2", "--threads", "1"]) == 1
    told = capsys.readouterr().out
    assert f"not {ends[0]}" in told and "1 of 2 trainings" in told


# ---- all policies (benchmarks/snapshots.py)


@pytest.fixture
def few(monkeypatch):
    """Few policies: one that takes a suffix, beside baseline, and one that chooses its algorithms."""
    monkeypatch.setattr(snapshots, "POLICIES", ["baseline", "vdnn_all"])
    monkeypatch.setattr(snapshots, "CHOOSING", ["superneurons"])


def of_policies(*suffixes: str) -> list[dict]:
    return list(snapshots.rows(suffixes, ["reference"], 1, lambda *told: None))


@pytest.mark.slow
def test_all_policies_end_with_the_same_snapshots(few):
    rows = of_policies(":m", "@2")
    assert [row["policy"] + row["suffix"] for row in rows] == [
        "baseline:m", "vdnn_all:m", "baseline@2", "vdnn_all@2", "superneurons@2"
    ]  # fmt: skip
    assert all(row["files"] == 2 and row["same"] and row["budgets"] == [] for row in rows)


@pytest.mark.slow
def test_another_snapshot_is_seen(few, monkeypatch, capsys):
    """vdnn_all runs in parts unasked, which is another algorithm for its sums."""
    real = policies.POLICIES["vdnn_all"]

    def parted(program, costs, budget, algorithms):
        return in_parts(2, partial(real, algorithms=algorithms))(program, costs, budget)

    parted.__module__ = real.__module__  # a user's own policy may not have other programs
    monkeypatch.setitem(policies.POLICIES, "vdnn_all", parted)
    monkeypatch.setattr(snapshots, "of_core", lambda core, *given: [{"core": core, **row} for row in of_policies(":m")])
    assert same_bytes.main(["--suffixes", ":m", "--cores", "Haswell"]) == 1
    told = capsys.readouterr().out
    assert "2 of 2 differ" in told and "4 snapshots compared, 2 differ" in told


def test_kernels_that_are_not_taken_are_said(monkeypatch, capsys):
    monkeypatch.setattr(snapshots, "_taken", lambda: "Zen")
    assert snapshots.main("Haswell", ":m", "reference", "1") == 2
    assert "asked for the kernels for Haswell, got Zen" in capsys.readouterr().err


def test_a_kind_of_cpu_that_is_unknown_is_named(capsys):
    assert same_bytes.main(["--suffixes", "--cores", "Z80"]) == 2
    assert "'Z80': expected one of Sandybridge, Haswell" in capsys.readouterr().err
