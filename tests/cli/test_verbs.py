"""plan, compare, time, profile, devices from the command line: one JSON document, exit codes, files."""

import contextlib
import json
import tracemalloc
from pathlib import Path

import pytest

from minidnn.backends.cpu import CpuDevice
from minidnn.cli.main import main
from tests.support.texts import NET

SOLVER = "net: small.yaml\nbase_lr: 0.01\nlr_policy: fixed\nmomentum: 0.9\nmax_iter: 10\nrandom_seed: 3\n"


@pytest.fixture
def folder(tmp_path, own_cache, monkeypatch):
    (tmp_path / "small.yaml").write_text(NET)
    (tmp_path / "solver.yaml").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capsys, *argv, code=0):
    assert main([*argv, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_ring_pins_less_and_changes_no_weight(folder, capsys):
    argv = ["compare", "solver.yaml", "--policies", "baseline:m,vdnn_all:m", "--steps", "3", "--report", "a.svg"]
    plain = answer(capsys, *argv)["rows"][1]
    argv += ["--host-ring", "20KiB", "--compress"]
    base, ring = answer(capsys, *argv)["rows"]
    assert ring["identical"] and ring["offload_bytes"] == plain["offload_bytes"] > 0
    assert plain["pageable_bytes"] == base["pageable_bytes"] == 0 < ring["pageable_bytes"]
    assert ring["pinned_bytes"] < plain["pinned_bytes"] == plain["host_bytes"]
    assert ring["host_bytes"] == ring["pinned_bytes"] + ring["pageable_bytes"]
    assert 0 < ring["stored_bytes"] < ring["pageable_bytes"], "what ReLU leaves packs"
    assert 'class="store"' in Path("a.svg").read_text()


def test_bytes_pinned_on_demand_are_fewer_and_change_no_weight(folder, capsys):
    argv = ["compare", "solver.yaml", "--policies", "baseline:m,vdnn_all:m", "--steps", "3", "--report", "a.svg"]
    plain = answer(capsys, *argv)["rows"][1]
    _, found = answer(capsys, *argv, "--pin-on-demand", "--compress")["rows"]
    assert found["identical"] and found["offload_bytes"] == plain["offload_bytes"] > 0
    assert found["pinned_bytes"] <= plain["pinned_bytes"]  # it was measured how many the threads can give back in time
    argv = ["train", "solver.yaml", "--max-iter", "2", "--policy", "vdnn_all:m"]
    each, found = answer(capsys, *argv), answer(capsys, *argv, "--pin-on-demand")
    assert found["pinned_bytes"] < each["pinned_bytes"] and found["pageable_bytes"] > 0


def test_a_placement_is_a_pool_s_and_changes_no_weight(folder, capsys):
    argv = ["compare", "solver.yaml", "--policies", "baseline:m,vdnn_pp:m", "--steps", "3"]
    lowest = answer(capsys, *argv)["rows"][1]
    pool = answer(capsys, *argv, "--placement", "worst:two_ended:size")["rows"][1]
    assert pool["identical"] and pool["arena_bytes"] > lowest["arena_bytes"]
    assert "pool/size/worst_fit/two_ended" in _listing(capsys, "--placement", "worst:two_ended:size")
    assert main(["plan", "small.yaml", "--placement", "bets"]) == 2
    assert "did you mean 'best'" in capsys.readouterr().err


def _listing(capsys, *argv):
    assert main(["plan", "small.yaml", "--policy", "vdnn_pp:m", "--listing", *argv]) == 0
    return capsys.readouterr().out


def test_the_command_line_goes_before_a_solver_files_ring(folder, capsys):
    Path("solver.yaml").write_text(SOLVER + "minidnn: {policy: vdnn_all, host_ring: 40KiB, compress: true}\n")
    (own,) = answer(capsys, "compare", "solver.yaml", "--policies", "vdnn_all:m", "--steps", "2")["rows"]
    argv = ["compare", "solver.yaml", "--policies", "vdnn_all:m", "--steps", "2", "--host-ring", "20KiB"]
    (given,) = answer(capsys, *argv)["rows"]
    assert own["identical"] and given["identical"] and given["pinned_bytes"] < own["pinned_bytes"]
    trained = answer(capsys, "train", "solver.yaml", "--max-iter", "2")
    assert trained["pinned_bytes"] == own["pinned_bytes"] and trained["pageable_bytes"] == own["pageable_bytes"]


def test_a_policy_that_is_refused_for_its_ring_is_compared_with_the_smallest_that_would_do(folder, capsys):
    argv = ["compare", "solver.yaml", "--policies", "baseline:m,vdnn_all:m", "--steps", "2", "--host-ring", "1KiB"]
    base, refused = answer(capsys, *argv)["rows"]
    assert base["fits"] and not refused["fits"] and "smallest ring that it can use" in refused["why"]
    assert refused["identical"] and refused["smallest_host_budget_bytes"] is None
    argv[-1] = str(refused["smallest_host_ring_bytes"])
    assert answer(capsys, *argv)["rows"][1]["fits"]


def test_what_a_ring_cannot_do_is_said(folder, capsys):
    assert main(["plan", "small.yaml", "--policy", "vdnn_all:m", "--compress"]) == 2
    assert "--host-ring 64MiB, or --pin-on-demand" in capsys.readouterr().err
    assert main(["train", "solver.yaml", "--policy", "vdnn_all:m", "--host-ring", "1KiB"]) == 2
    assert "the smallest ring that it can use is" in capsys.readouterr().err


def test_plan_of_a_model_has_gradients_and_of_a_solver_momenta(folder, capsys):
    (model,) = answer(capsys, "plan", "small.yaml", "--policy", "baseline:m")["rows"]
    (solver,) = answer(capsys, "plan", "solver.yaml", "--policy", "baseline:m")["rows"]
    weights = 4 * (8 * 27 + 8 + 2 * (8 * 72 + 8) + 5 * 288 + 5)
    assert model["role_bytes"]["weights"] == model["role_bytes"]["weight_gradients"] == weights
    assert model["role_bytes"]["optimizer_state"] == 0 and solver["role_bytes"]["optimizer_state"] == weights
    assert model["input_bytes"] == 4 * 3 * 144 * 4 + 4 * 4 and model["identical"] is None


def test_plan_simulates_a_gpu_at_another_batch(folder, capsys):
    argv = ("plan", "small.yaml", "--policies", "baseline:m,vdnn_all:m", "--gpu", "titan_x", "--facts", "vdnn2016")
    small = answer(capsys, *argv)["rows"]
    large = answer(capsys, *argv, "--batch", "32")["rows"]
    assert [r["policy"] for r in small] == ["baseline:m", "vdnn_all:m"]
    assert large[0]["role_bytes"]["feature_maps"] > 7 * small[0]["role_bytes"]["feature_maps"]
    assert all(
        r["paper_peak_bytes"] > 0 and r["step_seconds"] > 0 and "implicit_gemm" in r["algorithms"] for r in small
    )
    tightly = (*argv[:2], "--policy", "baseline:m", "--gpu", "k40", "--budget", "10KiB")
    (tight,) = answer(capsys, *tightly, code=2)["rows"]
    assert not tight["fits"] and "the budget is" in tight["why"]


def test_listing_is_the_schedule(folder, capsys):
    assert main(["plan", "small.yaml", "--policy", "vdnn_all:m", "--no-fusion", "--listing"]) == 0
    text = capsys.readouterr().out
    assert "compute   conv1.forward" in text and "offload   data" in text and "prefetch" in text


@pytest.mark.parametrize(
    ("more", "fused"),
    [
        (("--device", "reference"), True),
        (("--device", "reference", "--no-fusion"), False),
        (("--gpu", "v100"), True),
        (("--gpu", "v100", "--no-fusion"), False),
        (("--gpu", "v100", "--facts", "vdnn2016"), False),
        (("--device", "cpu"), CpuDevice().native is not None),
    ],
)
def test_fusion_shows_in_the_listing_and_can_be_turned_off(folder, capsys, more, fused):
    assert main(["plan", "small.yaml", "--policy", "liveness:m", "--listing", *more]) == 0
    text = capsys.readouterr().out
    assert ("compute   conv1+relu1.forward" in text) == ("relu1+conv1.backward_bias" in text) == fused
    assert ("compute   relu1.forward" in text) == ("compute   conv1.backward_bias" in text) == (not fused)
    assert ("compute   pool+relu3.backward" in text) == fused


def test_fusion_is_turned_off_for_what_runs_too(folder, capsys):
    off = ("--device", "reference", "--no-fusion")
    assert answer(capsys, "time", "solver.yaml", "--iterations", "1", *off)["rows"]
    rows = answer(capsys, "compare", "small.yaml", "--policies", "baseline:m,vdnn_all:m", "--steps", "2", *off)["rows"]
    assert all(r["identical"] for r in rows)
    first = answer(capsys, "train", "solver.yaml", "--max-iter", "2", "--device", "reference")
    assert answer(capsys, "train", "solver.yaml", "--max-iter", "2", *off)["history"] == first["history"]


def test_plan_exits_with_2_where_no_policy_keeps_the_budget(folder, capsys):
    rows = answer(capsys, "plan", "small.yaml", "--policies", "baseline:m,vdnn_all:m")["rows"]
    most, least = (row["peak_bytes"] for row in rows)
    assert least < most
    for budget, policies, code in ((least, "baseline:m,vdnn_all:m", 0), (least, "baseline:m", 2), (1, "vdnn_all:m", 2)):
        assert main(["plan", "small.yaml", "--policies", policies, "--budget", str(budget), "--json"]) == code
        assert any(row["fits"] for row in json.loads(capsys.readouterr().out)["rows"]) == (code == 0)


def test_tables_are_for_people(folder, capsys):
    assert main(["plan", "small.yaml"]) == 0
    text = capsys.readouterr().out
    assert "small, batch 4" in text and "liveness" in text and "KiB" in text


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_compare_runs_for_real_and_reports(folder, capsys, device):
    lean = answer(capsys, "plan", "solver.yaml", "--policy", "vdnn_all:m", "--device", device)["rows"][0]["peak_bytes"]
    rows = answer(
        capsys, "compare", "solver.yaml", "--policies", "baseline:m,vdnn_all:m,vdnn_dyn", "--budget", str(lean),
        "--device", device, "--steps", "3", "--report", "page.html",
    )["rows"]  # fmt: skip
    assert [r["fits"] for r in rows] == [False, True, True]
    assert all(r["identical"] is True and r["step_seconds"] > 0 for r in rows)
    page = (folder / "page.html").read_text()
    assert "<svg" in page and "byte-equal" in page and list(folder.glob("*.new")) == []


def test_compare_of_a_model_keeps_gradients_equal(folder, capsys):
    rows = answer(capsys, "compare", "small.yaml", "--policies", "baseline:m,vdnn_conv:m", "--device", "reference")[
        "rows"
    ]
    assert [r["identical"] for r in rows] == [True, True]


def test_compare_simulated_as_a_picture(folder, capsys):
    rows = answer(capsys, "compare", "small.yaml", "--gpu", "h200", "--report", "picture.svg")["rows"]
    assert rows[0]["policy"] == "baseline:p" and all(r["identical"] is None for r in rows)
    assert (folder / "picture.svg").read_text().startswith("<svg")


def test_time_by_layer(folder, capsys):
    for more in (("--device", "reference", "--iterations", "2"), ("--gpu", "v100")):
        found = answer(capsys, "time", "small.yaml", *more)
        by = {row["layer"]: row for row in found["rows"]}
        assert by["conv1"]["forward_seconds"] > 0 and by["conv2"]["backward_seconds"] > 0
        assert found["step_seconds"] > 0 and sum(row["share"] for row in found["rows"]) == pytest.approx(1)


@pytest.mark.slow
def test_profile_is_kept_and_used_by_plan(folder, capsys):
    first = answer(capsys, "profile", "small.yaml", "--device", "reference")
    assert first["measured_now"] > 10 and first["bandwidth_out"] > 0
    assert {r["op"] for r in first["rows"]} >= {"conv1+relu1.forward", "conv2.backward_data"}
    assert answer(capsys, "profile", "small.yaml", "--device", "reference")["measured_now"] == 0
    assert main(["plan", "small.yaml", "--device", "reference"]) == 0
    assert "estimated costs" in capsys.readouterr().out
    asked = ["plan", "small.yaml", "--device", "reference", "--costs", "measured"]
    assert main(asked) == 0
    assert "measured costs" in capsys.readouterr().out
    assert main([*asked, "--batch", "7"]) == 2
    assert "there are no measurements of conv1+relu1.forward" in capsys.readouterr().err
    assert main([*asked, "--gpu", "k40"]) == 2
    assert "leave out --gpu k40" in capsys.readouterr().err
    argv = ("--device", "reference", "--policy", "liveness", "--budget", "1MiB")
    assert answer(capsys, "search", "--max", "batch", "small.yaml", *argv)["rows"][0]["batch"] > 1, "at many sizes"
    (cache,) = (folder / "cache").rglob("*.json")
    cache.write_text("{")
    assert main(asked) == 2
    captured = capsys.readouterr()
    assert "run `minidnn profile` with the same FILE" in captured.err and str(cache) in captured.err


def test_a_solver_of_a_net_without_a_loss_is_bad_input(folder, capsys):
    (folder / "small.yaml").write_text("\n".join(NET.splitlines()[:-1]))
    for argv in (["plan", "solver.yaml"], ["compare", "solver.yaml"], ["train", "solver.yaml"]):
        assert main(argv) == 2
        captured = capsys.readouterr().err
        assert "net small has no loss to train with" in captured and "internal error" not in captured


def test_what_cannot_be_written_is_said_before_anything_runs(folder, capsys, monkeypatch):
    monkeypatch.setattr("minidnn.measuring.ops.link", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr("minidnn.api.compare.ran", lambda *_: pytest.fail("ran"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "small.yaml"))
    assert main(["profile", "small.yaml", "--device", "reference"]) == 2
    captured = capsys.readouterr().err
    assert "costs cannot be kept" in captured and "Not a directory" in captured and "XDG_CACHE_HOME" in captured
    (folder / "there.html").mkdir()
    assert main(["compare", "small.yaml", "--report", "there.html"]) == 2
    assert "is a folder" in capsys.readouterr().err
    monkeypatch.setattr("os.access", lambda *_: False)
    assert main(["compare", "small.yaml", "--report", "page.html"]) == 2
    assert "--report page.html: the folder . cannot be written to" in capsys.readouterr().err


def test_no_verb_is_a_question(capsys):
    assert main([]) == 0
    assert "predict" in capsys.readouterr().out


def test_compare_runs_with_facts_that_run_and_simulates_with_others(folder, capsys):
    argv = ("compare", "small.yaml", "--policies", "baseline:m,liveness:m", "--steps", "3", "--facts")
    ran = answer(capsys, *argv, "layrub")["rows"]
    assert [r["identical"] for r in ran] == [True, True]
    # four bytes of an output are one byte of its mask, and the output dies in forward
    assert ran[0]["role_bytes"]["extra"] > 4 * 8 * 144 * 2
    simulated = answer(capsys, *argv, "vdnn2016")["rows"]
    assert [r["identical"] for r in simulated] == [None, None]


@pytest.mark.slow
def test_devices(capsys, small_copies):
    found = answer(capsys, "devices")
    by = {d["name"]: d for d in found["devices"]}
    assert by["cpu"]["available"] and by["cpu"]["memory_bytes"] > 2**20 and by["reference"]["available"]
    assert not by["cuda"]["available"] and by["cuda"]["why"]
    assert {"titan_x", "k40", "v100", "a100", "h200"} <= {g["name"] for g in found["gpus"]}


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["plan", "small.yaml", "--gpu", "titan_y"], "did you mean 'titan_x'?"),
        (["plan", "small.yaml", "--policy", "vdn_all"], "did you mean 'vdnn_all'?"),
        (["plan", "small.yaml", "--facts", "vdnn2015"], "did you mean 'vdnn2016'?"),
        (["train", "solver.yaml", "--facts", "vdnn2016"], "no backend has kernels for pool='x', lrn='xy'"),
        (["plan", "missing.yaml"], "missing.yaml"),
        (["compare", "small.yaml", "--report", "page.pdf"], ".html or .svg"),
        (["compare", "small.yaml", "--report", "nowhere/page.html"], "there is no folder nowhere"),
    ],
)
def test_bad_input_is_one_line_and_code_2(folder, capsys, argv, says):
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert says in captured.err and "Traceback" not in captured.err and not captured.out


def test_training_without_json_keeps_no_row_per_iteration(folder, monkeypatch):
    """After 60 iterations the command itself holds what it held before, but for a few numbers."""
    from minidnn.cli import progress, train
    from minidnn.training.events import Step

    held = []

    def watch(event):
        if isinstance(event, Step) and event.iteration == 5:
            tracemalloc.start()
        elif isinstance(event, Step) and event.iteration == 65:
            here = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, train.__file__)])
            held.append(sum(trace.size for trace in here.traces))

    monkeypatch.setattr(progress, "watching", lambda solver, quiet: contextlib.nullcontext(watch))
    try:
        assert main(["train", "solver.yaml", "--max-iter", "66", "--device", "reference"]) == 0
    finally:
        tracemalloc.stop()
    assert len(held) == 1 and held[0] < 1000
