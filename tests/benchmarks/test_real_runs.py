"""benchmarks/real_runs.py, in small."""

from __future__ import annotations

import json

import pytest

from benchmarks import real_runs


def row(policies, percent, over, seconds=1.0, foreseen=1.0):
    return {
        "network": "net", "batch": 2, "percent": percent, "budget_bytes": 1 << 20, "costs": "measured",
        "policies": policies, "peak_bytes": 1 << 20, "offload_bytes": 0, "ops_again": 0, "seconds": seconds,
        "seconds_low": seconds, "seconds_high": seconds, "foreseen_seconds": foreseen, "rounds": [seconds],
        "over_best": over, "other_processors": 0.0,
    }  # fmt: skip


def test_how_far_best_is_behind_is_counted_for_each_budget():
    rows = [
        row(["best", "liveness"], 100, [1.0, 1.0, 1.0]), row(["vdnn_all"], 100, [1.3, 1.2, 1.4], 1.3, 1.5),
        row(["best"], 40, [1.0, 1.0, 1.0]), row(["dtr"], 40, [0.8, 0.7, 0.9]),
        row(["best"], 60, [1.0, 1.0, 1.0]), row(["dtr"], 60, [0.99, 0.9, 1.1]),
    ]  # fmt: skip
    first, second, third, last = real_runs.summary(rows)
    assert first == "net b2, 100 %: the quickest is best, liveness; best takes 0.0% longer"
    assert second == "net b2, 40 %: the quickest is dtr; best takes 25.0% longer"
    assert third == "net b2, 60 %: the quickest is dtr; best takes 1.0% longer (less than the noise)"
    assert last == "best within 2% of the quickest: 2 of 3 budgets; foreseen within 5%: 5 of 6 plans"
    assert real_runs.behind(rows[1:2]) is None, "best was not run"
    rows[0]["other_processors"] = 1.5
    assert "kept up to 1.5 processors at work" in real_runs.summary(rows)[-1]


def test_what_was_saved_of_other_nets_and_budgets_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(real_runs, "RESULTS", tmp_path)
    monkeypatch.setattr("benchmarks.gaps.RESULTS", tmp_path)
    monkeypatch.setattr(real_runs.machine, "cpu", lambda: "A CPU")
    document = {
        "rows": [row(["best"], p, [1.0, 1.0, 1.0]) for p in (100, 40)],
        "machine": real_runs.machine.described(),
    }
    real_runs.save(real_runs.NAME, real_runs.HEADINGS, [], [], document)
    now = [row(["best"], 40, [1.0, 1.0, 1.0], seconds=2.0)]
    assert [r["percent"] for r in real_runs.earlier(now, tmp_path)] == [100]
    assert real_runs.earlier(now, tmp_path / "none") == []


def test_plans_that_are_the_same_are_run_once(monkeypatch):
    program, costs = real_runs.programs(real_runs.nets.found("digits_lenet", 8), None, ("TRAIN",))["TRAIN"], None
    costs = real_runs.estimate(real_runs.open_device("reference"))
    policies = ["liveness", "liveness:f", "vdnn_all:m", "best"]
    cases = real_runs.planned(program, policies, costs, 1 << 40, lambda *_: None)
    assert cases[0].policies[0] == "best"
    assert sorted(p for case in cases for p in case.policies) == sorted(policies) and len(cases) < 4
    assert not real_runs.planned(program, ["liveness"], costs, 1, lambda *_: None), "it keeps no such budget"
    assert real_runs.fitting(cases, cases[0].nbytes) == cases[:1]


@pytest.mark.slow
def test_a_net_runs_under_a_budget(capsys, own_cache):
    argv = ["--networks", "digits_lenet:8", "--budgets", "80", "--policies", "vdnn_all:m,liveness:m,best"]
    assert real_runs.main([*argv, "--costs", "estimated", "--rounds", "4", "--sittings", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows[0]["policies"][0] == "best" and {p for r in rows for p in r["policies"]} >= {"best", "liveness:m"}
    assert all(len(r["rounds"]) == 4 and r["seconds"] > 0 and r["peak_bytes"] <= r["budget_bytes"] for r in rows)
    assert real_runs.main([*argv[:2], "--policies", "nosuch"]) == 2 and "nosuch" in capsys.readouterr().err
    assert real_runs.main(["--networks", "nosuch:2"]) == 2
