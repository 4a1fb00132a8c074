"""benchmarks/same_bytes.py: nets trained under `best` end with the bytes of baseline, and the script sees when not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import same_bytes
from minidnn.costs import estimate
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
