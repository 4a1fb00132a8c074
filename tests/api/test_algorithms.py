"""`minidnn time --algorithms`: each op's algorithms side by side, from a profile or from what was measured."""

from __future__ import annotations

import json
import shutil

import pytest

from minidnn.api.time import algorithm_rows, sums
from minidnn.backends import open_device
from minidnn.cli.main import main
from minidnn.costs import measurements
from minidnn.memory.plan import complete
from minidnn.memory.policies import BUDGETED, DEFAULT, find
from tests.support.paths import NET_FILES
from tests.support.programs import costs, residual

PASSES = ["forward_relu", "backward_filter", "backward_data"]


@pytest.fixture
def folder(tmp_path, own_cache, monkeypatch):
    shutil.copy(NET_FILES / "lenet.yaml", tmp_path / "net.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capsys, *argv):
    assert main(["time", *argv, "--algorithms", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("policy", "chosen"), [("liveness:m", "slow"), ("liveness:p", "fast")])
def test_rows_are_what_costs_say_and_the_plan_takes(policy, chosen):
    p = residual(1)
    rows = algorithm_rows(p, complete(p, costs(), find(policy)(p, costs(), 1 << 40)), costs())
    assert {r["part"] for r in rows} == {"forward", "backward_filter", "backward_data"}
    assert [r["layer"] for r in rows] == sorted((r["layer"] for r in rows), key=p.layers.index)
    assert len(rows) == 2 * sum(op.kind.startswith("convolution.") for op in p.ops)
    assert {(r["algorithm"], r["workspace_bytes"], r["op_seconds"]) for r in rows} == {
        ("slow", 0, 2e-4),
        ("fast", 40960, 1e-4),
    }
    assert {r["algorithm"] for r in rows if r["chosen"]} == {chosen}
    found, n = sums(rows), len(rows) // 2
    assert dict(found["fastest"]) == {"op_seconds": pytest.approx(n * 1e-4), "workspace_bytes": 40960}
    assert dict(found["least"]) == {"op_seconds": pytest.approx(n * 2e-4), "workspace_bytes": 0}
    assert found["chosen"] == found["fastest" if chosen == "fast" else "least"]


def test_a_deconvolution_s_passes_are_named_as_its_own(capsys):
    """Its forward is the kind of a convolution's backward_data."""
    rows = answer(capsys, str(NET_FILES / "images.yaml"), "--gpu", "titan_x")["rows"]
    of = [(r["op"], r["part"]) for r in rows if r["layer"] == "up"]
    assert of == [(f"up.{name}", name) for name in ("forward", "backward_filter", "backward_data")]


def test_of_a_simulated_gpu(capsys):
    lean, quick = (
        answer(capsys, "vgg16", "--gpu", "titan_x", "--policy", policy) for policy in ("liveness:m", "liveness:p")
    )
    assert (lean["policy"], quick["policy"]) == ("liveness:m", "liveness:p")
    of = [r for r in quick["rows"] if r["layer"] == "conv3_2"]
    assert [r["part"] for r in of] == [name for name in PASSES for _ in range(2)]
    assert [(r["algorithm"], r["chosen"]) for r in of] == 3 * [("implicit_gemm", False), ("fast", True)]
    assert of[0]["workspace_bytes"] == 0 < of[1]["workspace_bytes"] and of[0]["op_seconds"] > of[1]["op_seconds"]
    assert not any(r["chosen"] for r in lean["rows"] if r["algorithm"] == "fast")
    assert quick["chosen_sum"] == quick["fastest_sum"] == lean["fastest_sum"]
    assert lean["chosen_sum"] == lean["least_sum"]


@pytest.mark.slow
def test_what_is_missing_is_measured_once_and_profile_s_is_taken(folder, capsys, monkeypatch):
    known = measurements(open_device("cpu"))  # of copies, which take longest
    known.bandwidth_out = known.bandwidth_in = 1e10
    known.beside = [{"bound_by": "memory", "op": "any", "bandwidth_out": 1e10, "bandwidth_in": 1e10, "slower": 1.0}]
    known.save()
    found = answer(capsys, "net.yaml")
    assert (found["device"], found["origin"]) == ("cpu", "measured") and {r["layer"] for r in found["rows"]} >= {
        "conv1",
        "conv2",
    }
    chosen = {}
    for r in found["rows"]:
        assert r["op_seconds"] > 0
        chosen.setdefault(r["op"], []).append(r["chosen"])
    assert all(sum(of) == 1 for of in chosen.values())
    monkeypatch.setattr("minidnn.measuring.bench.timed", lambda *_: pytest.fail("measured again"))
    assert answer(capsys, "net.yaml")["rows"] == found["rows"]
    assert main(["profile", "net.yaml", "--json"]) == 0
    profiled = json.loads(capsys.readouterr().out)
    assert profiled["measured_now"] == 0
    known = {(r["op"], r["algorithm"], r["workspace_bytes"]): r["op_seconds"] for r in profiled["rows"]}
    for r in found["rows"]:
        assert known[r["op"], r["algorithm"], r["workspace_bytes"]] == r["op_seconds"]


def test_for_people(folder, capsys):
    assert main(["time", "net.yaml", "--gpu", "v100", "--algorithms"]) == 0
    text = capsys.readouterr().out
    assert "conv1" in text and "backward_filter" in text and text.count("1.00×") >= text.count("chosen") == 5
    assert f"all ops, with the algorithms of {DEFAULT}: " in text and "all ops, with the least workspace: " in text


def test_what_it_cannot_do_is_said(folder, capsys):
    assert main(["time", "net.yaml", "--algorithms", "--iterations", "3"]) == 2
    assert "leave out --iterations" in capsys.readouterr().err
    assert main(["time", "net.yaml", "--algorithms", "--budget", "10KiB", "--gpu", "v100"]) == 2
    assert f"the smallest budget {BUDGETED} can keep" in capsys.readouterr().err
    assert main(["time", "net.yaml", "--algorithms", "--policy", "livenes"]) == 2
    assert "did you mean 'liveness'" in capsys.readouterr().err
